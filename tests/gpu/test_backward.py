"""Backward passes on a GPU: every configuration of this build against fp64, and `flash_attn_func`
under autograd, CUDA graphs and streams."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from typing import Any

import pytest
import torch

import flash_attention
from flash_attention import available_kernels
from flash_helpers.base.dtypes import DType
from flash_helpers.check.gradients import attention_gradients
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import bitwise_equal
from flash_helpers.kernels.backward_config import BackwardKernelConfig, Sizes
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.registry import violations
from flash_helpers.kernels.sm90_bwd_cluster.config import ClusterBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_fused.config import AddBy, FusedBackwardKernelConfig
from tests.gpu.inputs import guarded
from tests.guarded import margins_ok

pytestmark = pytest.mark.gpu

REPEATS = 100
NAMES = ("d_q", "d_k", "d_v")
# (batch, query length, key length, query heads, KV heads)
LENGTHS = [
    (1, 1, 1, 1, 1), (2, 1, 203, 2, 1), (1, 63, 65, 2, 2), (2, 128, 128, 4, 2),
    (1, 203, 1023, 4, 1), (1, 1023, 203, 2, 1), (1, 1000, 1216, 2, 2), (1, 4097, 4097, 2, 1),
    (3, 100, 6000, 6, 2), (1, 300, 2500, 16, 1),
]  # fmt: skip


def built() -> list[KernelConfig]:
    """What this build has, this GPU can run, and `flash_attention.backward` takes."""
    if not torch.cuda.is_available():
        return []
    capability = torch.cuda.get_device_capability()
    found = [c for c in available_kernels() if c.GRADIENTS and not c.SERVES]
    return [c for c in found if not violations(c, capability)]


each = pytest.mark.parametrize("config", built(), ids=str)


def draw(
    config: KernelConfig, shape: tuple[int, int, int, int, int], causal: bool, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Inputs in guarded memory, and what the forward pass leaves of them."""
    batch, q_len, k_len, heads, kv_heads = shape
    generator = torch.Generator("cuda").manual_seed(seed)
    dtype = config.dtype.to_torch_dtype()
    sizes = {"q": (q_len, heads), "k": (k_len, kv_heads), "v": (k_len, kv_heads)}
    sizes["d_o"] = sizes["q"]
    found = {}
    for name, (length, n) in sizes.items():
        shape_of = (batch, length, n, config.d_head)
        values = torch.randn(shape_of, generator=generator, device="cuda")
        found[name] = guarded(shape_of, dtype, values)
    o, lse = attention_reference(found["q"], found["k"], found["v"], fp64=True, causal=causal)
    return {**found, "o": o.to(dtype), "lse": lse.float()}


def run(config: KernelConfig, given: dict[str, torch.Tensor], causal: bool) -> dict[str, Any]:
    found = flash_attention.backward(
        config, given["d_o"], given["q"], given["k"], given["v"], given["o"], given["lse"],
        causal=causal, d_lse=given.get("d_lse"),
    )  # fmt: skip
    return dict(zip(NAMES, found, strict=True))


def check(config: KernelConfig, given: dict[str, torch.Tensor], causal: bool) -> dict[str, Any]:
    torch.use_deterministic_algorithms(True)  # torch.empty() holds NaN
    found = run(config, given, causal)
    torch.use_deterministic_algorithms(False)
    reference = attention_gradients(
        given["q"], given["k"], given["v"], given["d_o"], d_lse=given.get("d_lse"), causal=causal
    )
    print(config, reference.worst_rows(found))
    assert reference.problem_with(found) == ""
    assert all(margins_ok(given[name]) for name in ("q", "k", "v", "d_o"))
    return found


def test_there_is_something_to_test() -> None:
    assert built(), "this build has no backward kernels: KERNELS=ampere-bwd"


@each
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", LENGTHS, ids=str)
def test_any_lengths(
    config: BackwardKernelConfig, shape: tuple[int, int, int, int, int], causal: bool
) -> None:
    check(config, draw(config, shape, causal), causal)


BY_PAIRS = [c for c in built() if isinstance(c, ClusterBackwardKernelConfig)]
SEVERAL_WAVES = [
    (8, 333, 4000, 16, 16), (3, 700, 4049, 16, 8), (64, 70, 4000, 2, 1), (2, 2049, 4049, 16, 16),
]  # fmt: skip


@pytest.mark.parametrize("config", [c for c in BY_PAIRS if c.wave_pairs > 0], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SEVERAL_WAVES, ids=str)
def test_queries_that_other_heads_thread_blocks_prepare_and_round(
    config: ClusterBackwardKernelConfig, shape: tuple[int, int, int, int, int], causal: bool
) -> None:
    """Heads enough for several waves; dK and dV are the same whoever makes the RowStats."""
    batch, q_len, k_len, heads, kv_heads = shape
    sections = config.sections(Sizes(batch, q_len, k_len, heads, kv_heads, causal=causal))
    assert sections.lead < sections.count
    given = draw(config, shape, causal)
    found = check(config, given, causal)
    alone = run(replace(config, wave_pairs=0), given, causal)
    assert all(bitwise_equal(found[name], alone[name]) for name in ("d_k", "d_v"))


@pytest.mark.parametrize("config", [c for c in BY_PAIRS if c.is_deterministic()], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SEVERAL_WAVES, ids=str)
def test_pairs_that_wait_for_each_other(
    config: ClusterBackwardKernelConfig, shape: tuple[int, int, int, int, int], causal: bool
) -> None:
    """More than run at once, in either direction, with and without heads that share keys."""
    given = draw(config, shape, causal)
    found = check(config, given, causal)
    for _ in range(REPEATS):
        again = run(config, given, causal)
        assert all(bitwise_equal(found[name], again[name]) for name in NAMES)


@each
def test_gradients_of_the_log_sum_exp(config: BackwardKernelConfig) -> None:
    given = draw(config, (2, 130, 300, 4, 2), causal=True)
    given["d_lse"] = torch.randn_like(given["lse"])
    check(config, given, causal=True)


@each
@pytest.mark.parametrize("causal", [False, True])
def test_repeats_are_bitwise_equal(config: BackwardKernelConfig, causal: bool) -> None:
    """With other work on the GPU at the same time; d_q but for sums that come in any order."""
    names = [n for n in NAMES if n != "d_q" or config.is_deterministic()]
    given = draw(config, (2, 515, 643, 8, 4), causal)
    first = run(config, given, causal)
    noise, side = torch.randn(2048, 2048, device="cuda"), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    for _ in range(REPEATS):
        with torch.cuda.stream(side):
            noise = (noise @ noise).clamp(-1, 1)
        again = run(config, given, causal)
        assert all(bitwise_equal(first[name], again[name]) for name in names)


@pytest.mark.parametrize("d_head", [64, 96, 128])
def test_two_streams_wait_for_each_others_multiprocessors_alone(d_head: int) -> None:
    """Thread blocks that wait for others of their grid, of two grids at once, and of more blocks
    than there is room for; of one sequence, and of many short ones."""
    streams = [torch.cuda.Stream() for _ in range(2)]  # type: ignore[no-untyped-call]
    for shape, causal in (((1, 6000, 6000, 8, 2), True), ((40, 300, 300, 6, 6), False)):
        config = fused(d_head)
        given = [draw(config, shape, causal) for _ in streams]
        first = [run(config, one, causal) for one in given]
        torch.cuda.synchronize()
        for _ in range(20):
            again = []
            for stream, one in zip(streams, given, strict=True):
                with torch.cuda.stream(stream):
                    again.append(run(config, one, causal))
            torch.cuda.synchronize()
            for expected, found in zip(first, again, strict=True):
                assert all(bitwise_equal(expected[name], found[name]) for name in NAMES)


def fused(d_head: int) -> BackwardKernelConfig:
    columns = 128 if d_head == 64 else 64
    return FusedBackwardKernelConfig(DType.BF16, d_head, 128, columns, 2, 2, AddBy.IN_ORDER)


def leaves(d_head: int, dtype: torch.dtype = torch.float16) -> list[torch.Tensor]:
    sizes = [(2, 200, 4, d_head), (2, 300, 2, d_head), (2, 300, 2, d_head)]
    return [torch.randn(s, device="cuda", dtype=dtype).requires_grad_() for s in sizes]


attend: Any = flash_attention.flash_attn_func  # whatever it returns


@pytest.mark.parametrize("d_head", [64, 96, 128, 192, 256])
def test_autograd(d_head: int) -> None:
    q, k, v = leaves(d_head)
    o = attend(q, k, v, causal=True)
    d_o = torch.randn_like(o)
    found = dict(zip(NAMES, torch.autograd.grad(o, (q, k, v), d_o), strict=True))
    reference = attention_gradients(q.detach(), k.detach(), v.detach(), d_o, causal=True)
    assert reference.problem_with(found) == ""


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_cuda_graph_of_both_passes(deterministic: bool) -> None:
    q, k, v = leaves(128)

    def step() -> tuple[torch.Tensor, ...]:
        o = attend(q, k, v, causal=True, deterministic=deterministic)
        return torch.autograd.grad(o.square().sum(), (q, k, v))

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for seed in range(3):
        torch.manual_seed(seed)
        with torch.no_grad():
            for x in (q, k, v):
                x.normal_()
        graph.replay()
        (d_q, *of_keys), (wanted, *wanted_of_keys) = captured, step()
        assert all(bitwise_equal(a, b) for a, b in zip(of_keys, wanted_of_keys, strict=True))
        if deterministic:
            assert bitwise_equal(d_q, wanted)
        else:  # the fused kernels' fp32 sums, in any order: a rounding apart
            assert torch.allclose(d_q, wanted, rtol=2**-10, atol=2**-18)


def allocated() -> int:
    """What remains when nothing is in flight: the engine's own thread lets go of the gradients of
    the last call a moment after the caller has them, and cyclic garbage of other tests comes in
    this one's way."""
    gc.collect()
    torch.cuda.synchronize()
    time.sleep(0.1)
    return torch.cuda.memory_allocated()


@pytest.mark.parametrize("deterministic", [False, True])
def test_no_memory_is_lost(deterministic: bool) -> None:
    inputs = leaves(128)

    def call() -> None:
        torch.autograd.grad(attend(*inputs, deterministic=deterministic).sum(), inputs)

    for _ in range(10):
        call()
    before = allocated()
    for _ in range(1000):
        call()
    assert allocated() == before


def test_autograd_is_deterministic_where_that_is_asked() -> None:
    """Many key blocks add to the same queries: the fused kernels would differ."""
    inputs = [torch.randn(1, 4096, 4, 128, device="cuda").half().requires_grad_() for _ in "qkv"]
    d_o = torch.randn_like(inputs[0])

    def step() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(attend(*inputs, deterministic=True), inputs, d_o)

    first = step()
    for _ in range(REPEATS):
        assert all(bitwise_equal(a, b) for a, b in zip(first, step(), strict=True))
