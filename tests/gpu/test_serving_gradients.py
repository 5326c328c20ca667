"""Gradients of packed sequences on a GPU: every head dimension and dtype, long sequences, and
nothing that waits."""

from __future__ import annotations

import pytest
import torch

from flash_helpers.check.serving import ServeRule
from flash_helpers.check.tolerance import bitwise_equal
from tests.serving.packed import CAUSAL, NAMES, Packed, varlen

pytestmark = pytest.mark.gpu

RULES = {
    "causal": CAUSAL,
    "full": ServeRule(),
    "window": ServeRule(causal=True, window=(100, 0)),
    "both sides": ServeRule(window=(300, 77)),
    "capped": ServeRule(causal=True, window=(200, -1), softcap=5.0, scale=0.3),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("d", [40, 64, 80, 96, 128, 160, 200, 256])
@pytest.mark.parametrize("rule", RULES)
def test_gradients(rule: str, d: int, dtype: torch.dtype) -> None:
    Packed(
        [200, 0, 1, 700, 64], [300, 9, 513, 700, 40], RULES[rule], heads=6, kv_heads=2, d=d,
        dtype=dtype, with_sinks=rule == "capped", with_d_lse=rule == "full", device="cuda",
    ).check()  # fmt: skip


@pytest.mark.parametrize(("d", "d_v"), [(128, 128), (192, 128), (256, 256)])
def test_long_sequences(d: int, d_v: int) -> None:
    Packed(
        [5000, 3000], [5000, 6000], heads=2, d=d, d_v=d_v, dtype=torch.bfloat16, device="cuda"
    ).check()


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
