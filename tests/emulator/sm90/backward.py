"""Runs the kernels of the Hopper family's backward passes in the emulator, one at a time."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.emulator import (
    EmulatedKernel,
    LaunchOptions,
    LaunchReport,
    compile_kernel,
    memory_range_of,
)
from flash_helpers.kernels.backward_args import (
    ROW_STATS_FLOATS,
    pack_backward_args,
)
from flash_helpers.kernels.backward_config import BackwardKernelConfig, Sizes
from flash_helpers.kernels.contract import Variant
from flash_helpers.kernels.registry import family_of
from flash_helpers.kernels.sm90_bwd_cluster.config import ClusterBackwardKernelConfig

from ..attention import to_bits
from ..planting import WRONG
from ..support import aligned
from ..work import TOO_MUCH, Work

SHAPED_LIKE = {"d_o": "q", "o": "q", "d_q": "q", "d_k": "k", "d_v": "k", "v": "k"}


@dataclass
class BackwardProblem:
    """Inputs [batch, sequence, head, column]. The output and its log-sum-exp are drawn too: the
    gradients follow from them, whether or not a forward pass would compute them."""

    config: BackwardKernelConfig
    seqlen_q: int
    seqlen_k: int
    heads: int = 1
    kv_heads: int = 1
    causal: bool = False
    seed: int = 0
    arrays: dict[str, Any] = field(init=False, repr=False)
    known: dict[Variant, tuple[dict[str, Any], Work]] = field(default_factory=dict, repr=False)
    given: dict[Variant, dict[str, Any]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        d_head = self.config.d_head
        shapes = {
            "q": (1, self.seqlen_q, self.heads, d_head),
            "k": (1, self.seqlen_k, self.kv_heads, d_head),
        }
        self.arrays = {}
        for name in ("q", "k", "v", "o", "d_o"):
            array = aligned(shapes[SHAPED_LIKE.get(name, name)], np.uint16)
            array[:] = to_bits(rng.standard_normal(array.shape), self.config.dtype)
            self.arrays[name] = array
        lse = aligned((self.heads, self.seqlen_q), np.float32)
        lse[:] = np.log(self.seqlen_k) + rng.random(lse.shape)
        self.arrays["lse"] = lse

    @property
    def sizes(self) -> Sizes:
        return Sizes(1, self.seqlen_q, self.seqlen_k, self.heads, self.kv_heads, causal=self.causal)

    def launch(
        self,
        kernel: EmulatedKernel,
        variant: Variant,
        inputs: dict[str, Any],
        options: LaunchOptions | None = None,
    ) -> tuple[dict[str, Any], LaunchReport]:
        """What the kernel writes, by name: before, every byte is 0xFF, or what is given for it. Of
        a deterministic kernel additions to the same sums have to be ordered."""
        options = replace(options or LaunchOptions(), ordered_sums=self.config.is_deterministic())
        outputs = {name: self.output(name, inputs) for name in self.config.outputs(variant)}
        inputs = {name: x for name, x in inputs.items() if name not in outputs}
        tensors = inputs | outputs
        strides = {n: (x[0].size, x[0, 0].size, x.shape[3])
                   for n, x in tensors.items() if x.ndim == 4}  # fmt: skip
        record = pack_backward_args(
            {name: x.ctypes.data for name, x in tensors.items()}, strides, batch=1,
            seqlen_q=self.seqlen_q, seqlen_k=self.seqlen_k, n_heads_q=self.heads,
            n_heads_kv=self.kv_heads, softmax_scale=self.config.d_head**-0.5, causal=self.causal,
        )  # fmt: skip
        report = kernel.launch(
            (self.grid(variant), 1, 1),
            (self.config.threads_of(variant), 1, 1),
            self.config.smem_of(variant),
            [family_of(self.config).launch_arguments(self.config, record, variant)],
            [*(memory_range_of(x, n, writable=False) for n, x in inputs.items()),
             *(memory_range_of(x, n) for n, x in outputs.items())],
            options=options,
        )  # fmt: skip
        return outputs, report

    def grid(self, variant: Variant) -> int:
        """Where thread blocks stay, so few that one has several of a problem's tiles, and another
        adds to the same sums."""
        n_tiles = self.config.grid(variant, self.sizes)
        most = 2 * self.config.cluster(variant)
        return min(n_tiles, most) if self.config.is_persistent(variant) else n_tiles

    def output(self, name: str, inputs: dict[str, Any]) -> Any:
        if name in ("row_stats", "d_q_sums"):
            stats = 1, self.heads, self.config.stats_rows(self.sizes), ROW_STATS_FLOATS
            shape = stats if name == "row_stats" else self.config.sums_shape(self.sizes)
            array = aligned(shape, np.float32)
        else:
            array = aligned(self.arrays[SHAPED_LIKE[name]].shape, np.uint16)
        array.view(np.uint8)[...] = inputs[name].view(np.uint8) if name in inputs else 0xFF
        return array

    def inputs(self, variant: Variant) -> dict[str, Any]:
        """With what the kernels before it write."""
        if variant not in self.given:
            found = self.arrays
            for before in itertools.takewhile(lambda v: v is not variant, self.config.variants()):
                found = found | self.expected(before)[0]
            self.given[variant] = found
        return self.given[variant]

    def expected(self, variant: Variant) -> tuple[dict[str, Any], Work]:
        """What the kernel without a fault writes, and how much it does."""
        if variant not in self.known:
            outputs, report = self.launch(
                clean_kernel(self.config, variant), variant, self.inputs(variant)
            )
            self.known[variant] = outputs, self.work(variant, report)
        return self.known[variant]

    def wrong(self, kernel: EmulatedKernel, variant: Variant, options: LaunchOptions) -> str:
        """What is wrong with a run, '' for nothing: all is bitwise the same in every run, but for
        sums of dQ, whose terms come in any order."""
        outputs, report = self.launch(kernel, variant, self.inputs(variant), options)
        expected, work = self.expected(variant)
        if not all(self.is_same(name, outputs[name], values) for name, values in expected.items()):
            return WRONG
        return "" if self.work(variant, report) == work else TOO_MUCH

    def work(self, variant: Variant, report: LaunchReport) -> Work:
        """How often a counter is asked until it is right depends on the schedule."""
        done = Work.done(report)
        asks = variant is Variant.KEYS and asks_counters(self.config)
        return replace(done, global_loads=0) if asks else done

    def is_same(self, name: str, found: Any, expected: Any) -> bool:
        """Every block of keys adds a term to a sum of dQ, in fp32. Each addition rounds by at most
        2^-24 of what it gives, which is at most all terms together: `terms` of the largest. That is
        taken for at most the largest sum, and two orders may differ by the roundings of both. Where
        the same kernel rounds such sums, dQ differs by a unit of its last place at most."""
        if found.tobytes() == expected.tobytes():
            return True
        if self.config.is_deterministic() or name not in ("d_q", "d_q_sums"):
            return False
        if name == "d_q":
            return bool((np.abs(found.astype(int) - expected.astype(int)) <= 1).all())
        n_sums = self.heads * self.config.stats_rows(self.sizes) * self.config.d_head
        (found, behind), (expected, behind_expected) = (
            np.split(x.reshape(-1), [n_sums]) for x in (found, expected)
        )
        if behind.tobytes() != behind_expected.tobytes():  # counters, and parts of dK and dV
            return False
        terms = -(-self.seqlen_k // self.config.shape(Variant.KEYS)[0])
        by_order = 2 * (terms - 1) * 2.0**-24 * terms * np.abs(expected).max(initial=0)
        return bool((np.abs(found - expected) <= by_order).all())  # not where one is NaN


def asks_counters(config: BackwardKernelConfig) -> bool:
    """Whether thread blocks of the large kernel wait for what others count in global memory."""
    if isinstance(config, ClusterBackwardKernelConfig):
        return config.wave_pairs > 0 or config.is_deterministic()
    return "d_q_sums" in config.scratch() and config.is_deterministic()


@functools.cache
def clean_kernel(config: BackwardKernelConfig, variant: Variant) -> EmulatedKernel:
    return compile_kernel(kernel_ptx(config, variant), config.symbol(variant))


def problems(config: BackwardKernelConfig, seed: int) -> list[BackwardProblem]:
    """More blocks that pass by than there are stages, ends within blocks, the mask, several heads
    that share keys, blocks that nothing passes, and some that a single block passes."""
    found = [
        BackwardProblem(config, 5 * 64 + 3, 5 * 64 + 5, seed=seed),
        BackwardProblem(config, 100, 300, 3, 1, causal=True, seed=seed),
        BackwardProblem(config, 300, 100, causal=True, seed=seed),
        BackwardProblem(config, 40, 50, 5, 5, seed=seed),
    ]
    if isinstance(config, ClusterBackwardKernelConfig) and config.wave_pairs > 0:
        # Sections enough, and causal a last one that is not whole.
        found.append(BackwardProblem(config, 90, 8 * 128 - 3, 3, 3, seed=seed))
        found.append(BackwardProblem(config, 70, 8 * 128 - 3, 7, 7, causal=True, seed=seed))
    return found
