"""A kernel of the build and the same one as NVRTC compiles it, on the GPU: the same bits, and as
fast, launched in turns by one process."""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import flash_attention
from flash_attention import jit
from flash_attention.checks.arguments import make_plan
from flash_attention.checks.backward_arguments import make_backward_plan
from flash_attention.dispatch import choose_from
from flash_attention.gradients import scratch_shapes
from flash_attention.interface import KernelNotBuiltError, built_kernel_id
from flash_attention.library import load_library
from flash_helpers.base.dtypes import DType
from flash_helpers.check.tolerance import bitwise_equal
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import by_preference

pytestmark = pytest.mark.gpu

BATCH, LENGTH, HEADS = 4, 4096, 16  # milliseconds: nothing else counts beside them
WARM_UP = 20  # rounds that count for nothing: until clocks have settled
ROUNDS = 120
# Of the medians, in either direction. NVRTC adds up addresses in other registers than nvcc, after
# which ptxas orders some kernels differently (docs/results/jit-h200.md).
SAME_SPEED = 0.01


def taken() -> dict[str, KernelConfig]:
    """Of each family and some head dimensions, what it takes for this problem from the build; those
    that serve tokens are measured by tests of their own."""
    found: dict[str, KernelConfig] = {}
    if not torch.cuda.is_available():
        return found
    device = torch.device("cuda")
    capability = torch.cuda.get_device_capability(device)
    for gradients, d_head in itertools.product((False, True), (64, 128, 192, 256)):
        problem = AttentionProblem(
            DType.FP16, BATCH, LENGTH, LENGTH, HEADS, HEADS, d_head, gradients=gradients
        )
        for family in by_preference(capability, gradients=gradients):
            if family.refusal(problem, capability) is None:
                with contextlib.suppress(KernelNotBuiltError):
                    found[f"{family.NAME} {d_head}"] = choose_from(family, problem, device)
    return found


@dataclass
class Launch:
    """A launch that only the kernel's id is missing from."""

    by_id: Callable[[int], object]
    variant: Variant
    outputs: list[Tensor]
    keeps: list[Tensor]  # whose addresses it has


def forward(config: KernelConfig, q: Tensor, k: Tensor, v: Tensor) -> Launch:
    o, lse = torch.empty_like(q), torch.empty(BATCH, HEADS, LENGTH, device="cuda")
    plan = make_plan(config, q, k, v, o, lse, None, False)
    args = plan.args(*(x.data_ptr() for x in (q, k, v, o, lse)))
    stream = torch.cuda.current_stream().cuda_stream
    return Launch(
        lambda kernel: load_library().launch(kernel, args, 0, stream),
        plan.variant,
        [o, lse],
        keeps=[q, k, v],
    )


def backward(config: KernelConfig, q: Tensor, k: Tensor, v: Tensor) -> Launch:
    o, lse, *_ = flash_attention.flash_attn_func(q, k, v, return_attn_probs=True)
    tensors = {"q": q, "k": k, "v": v, "o": o, "d_o": torch.randn_like(q), "lse": lse}
    outputs = {name: torch.empty_like(q) for name in ("d_q", "d_k", "d_v")}
    scratch = {
        name: torch.empty(shape, device="cuda")
        for name, shape in scratch_shapes(config, q.shape, k.shape, causal=False).items()
    }
    plan = make_backward_plan(config, tensors | outputs | scratch, None, False)
    stream = torch.cuda.current_stream().cuda_stream
    written = [x for name, x in outputs.items() if name != "d_q" or config.is_deterministic()]
    return Launch(
        lambda kernel: load_library().launch_backward(kernel, plan.args, 0, stream),
        config.first_variant(),
        written,  # but for sums that are added up in any order
        keeps=[*tensors.values(), *outputs.values(), *scratch.values()],
    )


@pytest.mark.parametrize("case", taken())
def test_same_bits_and_speed(case: str) -> None:
    config = taken()[case]
    generator = torch.Generator("cuda").manual_seed(1)
    shape = (BATCH, LENGTH, HEADS, config.d_head)
    q, k, v = (
        torch.randn(shape, device="cuda", dtype=config.dtype.to_torch_dtype(), generator=generator)
        for _ in "qkv"
    )
    launch = (backward if config.GRADIENTS else forward)(config, q, k, v)
    ours = built_kernel_id(config, launch.variant)
    if ours is None:
        pytest.skip("the build has another variant of it")
    theirs = jit.kernel_id(config, launch.variant, 0)
    assert ours != theirs
    launch.by_id(ours)
    expected = [x.clone() for x in launch.outputs]
    for x in launch.outputs:
        x.zero_()
    launch.by_id(theirs)
    assert all(map(bitwise_equal, launch.outputs, expected))

    both = ours, theirs
    rounds = [in_turns(launch, both, number % 2 == 1) for number in range(WARM_UP + ROUNDS)]
    rounds = rounds[WARM_UP:]
    one, other = (statistics.median(times) for times in zip(*rounds, strict=True))
    ratio = statistics.median(b / a for a, b in rounds)
    print(f"{case}: build {one:.4f} ms, JIT {other:.4f} ms, ratio {ratio:.4f}")
    assert abs(ratio - 1) < SAME_SPEED


def in_turns(launch: Launch, kernels: tuple[int, int], swapped: bool) -> tuple[float, float]:
    """Milliseconds of one launch of each; `swapped`: the second goes first."""
    taken = {kernel: milliseconds(launch, kernel) for kernel in kernels[:: -1 if swapped else 1]}
    return taken[kernels[0]], taken[kernels[1]]


def milliseconds(launch: Launch, kernel: int) -> float:
    before = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    after = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    before.record()
    launch.by_id(kernel)
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after))
