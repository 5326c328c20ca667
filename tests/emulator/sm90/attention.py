"""Runs kernels of the Hopper family in the emulator, on problems of every kind: one block takes
several tiles, lengths end within blocks, masks, rows without keys."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flash_helpers.check.tolerance import ROW_FACTOR
from flash_helpers.emulator import EmulatedKernel, LaunchOptions, LaunchReport, memory_range_of
from flash_helpers.kernel_configs import HopperForwardKernelConfig
from flash_helpers.kernels.forward_args import pack_forward_args
from flash_helpers.kernels.sm90_fwd.arguments import pack_launch_arguments
from flash_helpers.kernels.sm90_fwd.config import GROUP_ROWS, MaxPolicy

from ..attention import EPS, from_bits, to_bits
from ..planting import WRONG
from ..support import aligned
from ..work import Work
from .work import needed_work

TOLERANCE = ROW_FACTOR  # eps


@dataclass
class HopperProblem:
    """Inputs [batch, sequence, head, column], and the outputs in fp64."""

    config: HopperForwardKernelConfig
    seqlen_q: int
    seqlen_k: int
    heads: int = 1
    kv_heads: int = 1
    causal: bool = False
    counts_tiles: bool = False  # blocks draw their tiles from a counter
    grid: int = 1
    seed: int = 0
    scale: float = 1.0  # of the queries
    q: Any = field(init=False, repr=False)
    k: Any = field(init=False, repr=False)
    v: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        # Blocks are walked from last to first: the maxima of the rows grow on the way.
        growth = np.linspace(3.0, 0.3, self.seqlen_k)[:, None, None]
        for name in "qkv":
            rows, heads = (
                (self.seqlen_q, self.heads) if name == "q" else (self.seqlen_k, self.kv_heads)
            )
            array = aligned((1, rows, heads, self.config.d_head), np.uint16)
            values = rng.standard_normal(array.shape) * (growth if name == "k" else self.scale)
            array[:] = to_bits(values, self.config.dtype)
            setattr(self, name, array)

    def expected(self) -> tuple[Any, Any]:
        """Output and log-sum-exp [head, row]; 0 and -inf where a row sees no key."""
        q, k, v = (
            from_bits(array[0], self.config.dtype).swapaxes(0, 1)
            for array in (self.q, self.k, self.v)
        )
        share = self.heads // self.kv_heads
        k, v = np.repeat(k, share, axis=0), np.repeat(v, share, axis=0)
        scores = q @ k.swapaxes(1, 2) * self.config.d_head**-0.5
        if self.causal:
            row, key = np.arange(self.seqlen_q)[:, None], np.arange(self.seqlen_k)
            hidden = key > row + self.seqlen_k - self.seqlen_q
            scores = np.where(hidden, -np.inf, scores)
        maxima = scores.max(axis=2, keepdims=True)
        maxima = np.where(np.isfinite(maxima), maxima, 0.0)
        weights = np.exp(scores - maxima)
        sums = weights.sum(axis=2, keepdims=True)
        with np.errstate(divide="ignore"):
            lse = (np.log(sums) + maxima)[..., 0]
        return weights / np.where(sums > 0, sums, 1.0) @ v, lse

    def run(
        self, kernel: EmulatedKernel, options: LaunchOptions | None = None
    ) -> tuple[Any, Any, LaunchReport]:
        """Output bits, log-sum-exp and the report. Outputs start as NaN."""
        o, lse = aligned(self.q.shape, np.uint16), aligned((self.heads, self.seqlen_q), np.float32)
        o[:], lse[:] = 0xFFFF, np.nan
        counter = aligned(16, np.int32)
        q_strides, kv_strides = (
            (array[0].size, array[0, 0].size, self.config.d_head) for array in (self.q, self.k)
        )
        arguments = pack_forward_args(
            q=self.q.ctypes.data,
            k=self.k.ctypes.data,
            v=self.v.ctypes.data,
            o=o.ctypes.data,
            lse=lse.ctypes.data,
            q_strides=q_strides,
            k_strides=kv_strides,
            v_strides=kv_strides,
            o_strides=q_strides,
            batch=1,
            seqlen_q=self.seqlen_q,
            seqlen_k=self.seqlen_k,
            n_heads_q=self.heads,
            n_heads_kv=self.kv_heads,
            softmax_scale=self.config.d_head**-0.5,
            causal=self.causal,
        )
        drawn_from = counter.ctypes.data if self.counts_tiles else 0
        inputs = [memory_range_of(getattr(self, name), name, writable=False) for name in "qkv"]
        outputs = {"o": o, "lse": lse, "counter": counter}
        report = kernel.launch(
            (self.grid, 1, 1),
            (self.config.n_threads(), 1, 1),
            self.config.smem_bytes(),
            [pack_launch_arguments(self.config, arguments, tile_counter=drawn_from)],
            [*inputs, *(memory_range_of(array, name) for name, array in outputs.items())],
            options=options,
        )
        if counter.any():
            raise AssertionError(f"the tile counter is left at {counter[0]}")
        return o, lse, report

    def error(self, o: Any, lse: Any) -> float:
        """The worst row's error in eps; a log-sum-exp may be wrong by 1e-5 of it and 2e-5, which
        counts as TOLERANCE. NaN is infinite."""
        expected, expected_lse = self.expected()
        eps = EPS[self.config.dtype]
        actual = from_bits(o[0], self.config.dtype).swapaxes(0, 1)
        sizes = np.linalg.norm(expected, axis=2)
        with np.errstate(invalid="ignore"):
            rows = np.linalg.norm(actual - expected, axis=2) / np.where(sizes > 0, sizes, eps)
            allowed = (1e-5 * np.abs(expected_lse) + 2e-5) / TOLERANCE
            lse_error = np.where(lse == expected_lse, 0.0, np.abs(lse - expected_lse) / allowed)
        worst = max(np.where(np.isnan(e), np.inf, e).max() for e in (rows / eps, lse_error))
        return float(worst)

    @functools.cached_property
    def needed(self) -> Work:
        return needed_work(self)

    def wrong(self, o: Any, lse: Any, report: LaunchReport) -> str:
        """What is wrong with a run, '' for nothing."""
        if not (error := self.error(o, lse)) <= TOLERANCE:
            return f"{WRONG}: error {error:.3g}, allowed {TOLERANCE:.3g}"
        return self.needed.wrong(report)


def ends_with_a_block(config: HopperForwardKernelConfig, seed: int) -> HopperProblem:
    """The keys of the second group's first row end with a block: of the block behind, which comes
    first, it alone sees nothing, and the next one has no mask."""
    rows, keys = config.blocks()
    return HopperProblem(config, rows, rows + 2 * keys - GROUP_ROWS - 1, causal=True, seed=seed)


def overflowing(config: HopperForwardKernelConfig, seed: int) -> HopperProblem:
    """In most blocks exponentials leave the range of fp16, were the maximum kept."""
    rows, keys = config.blocks()
    return HopperProblem(config, rows, 4 * keys, seed=seed, scale=4.0)


def spiked(config: HopperForwardKernelConfig, seed: int) -> HopperProblem:
    """In one block of keys one score of a single row grows to 2^16.5 times what came before, in
    another one of a row that the same thread has: fp16 holds it no more, a sum of them might."""
    rows, keys = config.blocks()
    problem = HopperProblem(config, rows, 4 * keys, seed=seed)
    rng = np.random.default_rng(seed)
    q, k = (rng.standard_normal(array.shape) for array in (problem.q, problem.k))
    k *= 0.1
    q[..., :2] = k[..., :2] = 0.0
    for column, (block, half) in enumerate(((2, 0), (1, 8))):
        row, key = 16 * rng.integers(rows // 16) + half + rng.integers(8), rng.integers(keys)
        q[:, row, :, column] = 1.0
        k[:, block * keys + key, :, column] = 16.8 * config.d_head**0.5 * np.log(2)
    problem.q[:], problem.k[:] = to_bits(q, config.dtype), to_bits(k, config.dtype)
    return problem


def problems(config: HopperForwardKernelConfig, seed: int) -> list[HopperProblem]:
    """Each reaches code that others do not."""
    rows, keys = config.blocks()
    return [
        HopperProblem(config, 2 * rows + 40, 4 * keys, seed=seed),
        HopperProblem(config, 3 * rows - 70, 3 * keys + 41, causal=True, seed=seed),
        ends_with_a_block(config, seed),
        # Tiles without any key, blocks that draw their tiles from a counter.
        HopperProblem(config, 4 * rows, keys, 2, 1, True, True, grid=2, seed=seed),
        # Tiles of two blocks: no wait within a tile covers for those between tiles.
        HopperProblem(config, 3 * rows, 2 * keys, seed=seed),
        # The groups of a tile see different numbers of blocks.
        HopperProblem(config, 2 * rows, 2 * rows + 2 * keys - 64, causal=True, seed=seed),
        *(_of_optimism(config, seed) if config.max_policy is MaxPolicy.OPTIMISTIC else ()),
    ]


def _of_optimism(config: HopperForwardKernelConfig, seed: int) -> list[HopperProblem]:
    """Many blocks that do not raise the maximum; and scores that grow so steeply that they must be
    multiplied again."""
    rows, keys = config.blocks()
    return [
        HopperProblem(config, rows, 8 * keys, seed=seed, scale=0.1),
        HopperProblem(config, rows + 40, 4 * keys, seed=seed, scale=40.0),
    ]


def crowded_problems(config: HopperForwardKernelConfig, seed: int) -> list[HopperProblem]:
    """Many short tiles: what goes wrong only when one group, or one lane, is late by just so much
    has many chances. In all tiles of the first the groups see different numbers of blocks; in most
    of the second's, none."""
    rows, keys = config.blocks()
    return [
        HopperProblem(config, 2 * rows, 2 * rows + keys, 6, 2, causal=True, seed=seed),
        HopperProblem(config, 4 * rows, keys, 12, 2, causal=True, seed=seed),
    ]
