"""Gradients of packed sequences on a GPU: every head dimension and dtype, both families where there
are two, long sequences, captured graphs, and nothing that waits."""

from __future__ import annotations

import random

import pytest
import torch

from flash_attention.serving.gradients import Rule, choose
from flash_attention.serving.options import make_options
from flash_helpers.check.serving import ServeRule
from flash_helpers.check.tolerance import bitwise_equal
from flash_helpers.kernels.sm90_bwd_fused_serve.config import FusedServeBackwardKernelConfig
from tests.serving.packed import CAUSAL, NAMES, Packed, varlen

pytestmark = pytest.mark.gpu

RULES = {
    "causal": CAUSAL,
    "full": ServeRule(),
    "window": ServeRule(causal=True, window=(100, 0)),
    "both sides": ServeRule(window=(300, 77)),
    "capped": ServeRule(causal=True, window=(200, -1), softcap=5.0, scale=0.3),
}


@pytest.fixture(params=[False, True], ids=["hopper", "deterministic"])
def deterministic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """On Hopper deterministic gradients are the Ampere family's; the others', of sequences however
    short."""
    monkeypatch.setattr(f"{FusedServeBackwardKernelConfig.__module__}.LEAST_MEAN_ROWS", 0)
    return bool(request.param)


def test_who_computes_them() -> None:
    q = torch.empty(4, 2, 128, dtype=torch.bfloat16, device="cuda")
    options = make_options(128, None, True, (-1, -1), 0.0, 0)
    found = {same: choose(q, Rule(options, {}, same), sinks=False).FAMILY for same in (False, True)}
    on_hopper = torch.cuda.get_device_capability() == (9, 0)
    assert found[True] == "sm80_bwd_serve"
    assert found[False] == ("sm90_bwd_fused_serve" if on_hopper else "sm80_bwd_serve")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("d", [40, 64, 80, 96, 128, 160, 200, 256])
@pytest.mark.parametrize("rule", RULES)
def test_gradients(rule: str, d: int, dtype: torch.dtype, deterministic: bool) -> None:
    Packed(
        [200, 0, 1, 700, 64], [300, 9, 513, 700, 40], RULES[rule], heads=6, kv_heads=2, d=d,
        dtype=dtype, with_sinks=rule == "capped", with_d_lse=rule == "full", device="cuda",
    ).check(deterministic=deterministic)  # fmt: skip


@pytest.mark.parametrize(("d", "d_v"), [(64, 64), (128, 128), (192, 128), (256, 256)])
def test_long_sequences(d: int, d_v: int, deterministic: bool) -> None:
    Packed(
        [5000, 3000], [5000, 6000], heads=2, d=d, d_v=d_v, dtype=torch.bfloat16, device="cuda"
    ).check(deterministic=deterministic)


def test_tensors_with_memory_of_their_own(deterministic: bool) -> None:
    """Small tensors lie behind others: what reads in front of them goes unseen there."""
    lengths = random.Random(0).choices(range(110, 3870), k=34)
    Packed(lengths, lengths, CAUSAL, heads=4, kv_heads=4, d=64, device="cuda").check(
        deterministic=deterministic
    )


def test_what_repeats(deterministic: bool) -> None:
    """Gradients of keys and values always, of queries if they are deterministic."""
    problem = Packed([700, 129, 1000], [800, 300, 1000], heads=8, kv_heads=2, d=128, device="cuda")
    first, _ = problem.call(deterministic=deterministic)
    for _ in range(10):
        again, _ = problem.call(deterministic=deterministic)
        for name in NAMES if deterministic else ("d_k", "d_v"):
            assert bitwise_equal(first[name], again[name])


def test_a_graph_follows_the_lengths(deterministic: bool) -> None:
    """Captured with one set of lengths, replayed with others of as many rows."""
    problem = Packed([100, 300, 50], [200, 250, 100], heads=4, kv_heads=2, d=128, device="cuda")
    leaves = [problem.tensors[name].clone().requires_grad_() for name in "qkv"]
    q_starts, k_starts = problem.starts(problem.queries), problem.starts(problem.keys)

    def run() -> tuple[torch.Tensor, ...]:
        o = varlen(*leaves, q_starts, k_starts, causal=True, deterministic=deterministic)
        return torch.autograd.grad(o, leaves, problem.tensors["d_o"])

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    problem.queries, problem.keys = [10, 0, 440], [1, 349, 200]
    q_starts.copy_(problem.starts(problem.queries))
    k_starts.copy_(problem.starts(problem.keys))
    graph.replay()
    expected, _ = problem.call(deterministic=deterministic)
    for name, x in zip(NAMES, found, strict=True):
        torch.testing.assert_close(x, expected[name], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("queries", [[0] * 40, [0, 1, 128, 0, 127, 129, 64, 65]])
def test_edges(queries: list[int], deterministic: bool) -> None:
    keys = [*reversed(queries[:-1]), 3]
    problem = Packed(queries, keys, heads=2, d=128, device="cuda")
    problem.check(deterministic=deterministic)


def test_many_short_sequences() -> None:
    lengths = [i % 37 for i in range(700)]
    problem = Packed(lengths, lengths, heads=4, kv_heads=4, device="cuda")
    # One split: else the forward kernel, and so the last bits of the output, follow the batch.
    found, _ = problem.call(num_splits=1)
    again, _ = problem.call(num_splits=1)
    assert all(bitwise_equal(found[name], again[name]) for name in NAMES)
    last = sum(lengths[:-1]) + 3
    alone = Packed(lengths[-1:], lengths[-1:], heads=4, kv_heads=4, device="cuda")
    for name in ("q", "k", "v", "d_o"):
        alone.tensors[name][3:-2] = problem.tensors[name][last:-2]
    one, _ = alone.call(num_splits=1)
    assert all(bitwise_equal(one[name][3:-2], found[name][last:-2]) for name in NAMES)


def test_nothing_waits_for_the_device() -> None:
    problem = Packed([100, 30], [100, 30], with_sinks=True, device="cuda")
    problem.call()
    leaves = [problem.tensors[name].clone().requires_grad_() for name in "qkv"]
    starts = problem.starts(problem.queries)
    assert problem.sinks is not None
    sinks = problem.sinks.clone().requires_grad_()
    d_o = problem.tensors["d_o"]
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        o = varlen(*leaves, starts, starts, causal=True, s_aux=sinks)
        torch.autograd.grad(o, [*leaves, sinks], d_o)
    finally:
        torch.cuda.set_sync_debug_mode("default")
