"""Calls of PyTorch's scaled_dot_product_attention whose gradients are wanted, with these kernels on
the GPU, and what all calls cost the host."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

import flash_attention
from flash_attention.drop_in import sdpa_kernels
from flash_helpers.check.tolerance import bitwise_equal
from tests.drop_in_calls import Qkv, ours, sdpa, with_gradients
from tests.gpu.times import microseconds

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not hasattr(torch.library, "get_kernel"), reason="torch is too old"),
]


@pytest.fixture(autouse=True)
def flash() -> Iterator[None]:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        yield
    flash_attention.disable()


def tensors(length: int) -> Qkv:
    made = torch.Generator("cuda").manual_seed(length)
    q, k, v = (
        torch.randn(2, 4, length, 128, device="cuda", dtype=torch.float16, generator=made)
        for _ in "qkv"
    )
    return q, k, v


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which of the functions that are registered in PyTorch's dispatcher were called."""
    calls: list[str] = []

    def counted(name: str) -> None:
        kept = getattr(sdpa_kernels, name)

        def call(*given: Any, **named: Any) -> Any:
            calls.append(name)
            return kept(*given, **named)

        monkeypatch.setattr(sdpa_kernels, name, call)

    counted("forward")
    counted("backward")
    flash_attention.enable()
    return calls


@pytest.mark.parametrize("layout", ["as it is", "transposed", "grouped heads"])
def test_recorded_calls_go_past_it_too(layout: str, registered: list[str]) -> None:
    """The first call of a kind is checked, the next ones are the extension's alone."""
    qkv, options = tensors(length=88), {"is_causal": True, "scale": 0.3}
    if layout == "transposed":
        qkv = tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in qkv)  # type: ignore[assignment]
    if layout == "grouped heads":
        qkv, options["enable_gqa"] = (qkv[0], qkv[1][:, :2], qkv[2][:, :2]), True
    torch.use_deterministic_algorithms(True)
    try:
        expected = with_gradients(lambda *x: ours(*x, causal=True, softmax_scale=0.3), qkv)
        for _ in range(3):
            found = with_gradients(lambda *x: sdpa(*x, **options), qkv)
            assert all(map(bitwise_equal, found, expected)) and len(found) == 4
            assert [x.stride() for x in found[1:]] == [torch.empty_like(x).stride() for x in qkv]
    finally:
        torch.use_deterministic_algorithms(False)
    assert registered == []


def test_outer_gradients_may_have_any_layout(registered: list[str]) -> None:
    leaves = [x.requires_grad_() for x in tensors(length=89)]
    o = sdpa(*leaves)
    dense = torch.randn_like(o)
    outer = [dense, dense.transpose(1, 2).contiguous().transpose(1, 2), dense.mT.contiguous().mT]
    outer += [torch.ones_like(o[..., :1]).expand(o.shape), torch._neg_view(-dense)]
    for d_o in outer * 2:
        found = torch.autograd.grad(o, leaves, d_o, retain_graph=True)
        expected = torch.autograd.grad(o, leaves, d_o.resolve_neg().contiguous(), retain_graph=True)
        for one, other in zip(found, expected, strict=True):
            assert torch.allclose(one, other, atol=2e-3, rtol=2e-3)  # d_q is added in any order
    assert registered == []


def test_what_autograd_refuses_of_remembered_calls() -> None:
    flash_attention.enable()
    leaves = [x.requires_grad_() for x in tensors(length=90)]
    for _ in range(2):
        with_gradients(sdpa, tensors(length=90))
    o = sdpa(*leaves)
    (d_q,) = torch.autograd.grad(o.sum(), leaves[:1], create_graph=True)
    with pytest.raises(NotImplementedError, match="cannot be differentiated again"):
        torch.autograd.grad(d_q.sum(), leaves)
    with torch.no_grad():
        leaves[1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(o.sum(), leaves)


def test_a_dual_tensor_is_pytorch_s_to_refuse() -> None:
    flash_attention.enable()
    q, k, v = tensors(length=91)
    sdpa(q, k, v)
    make_dual: Any = forward_ad.make_dual
    with forward_ad.dual_level(), pytest.raises((NotImplementedError, RuntimeError)):
        sdpa(make_dual(q, torch.randn_like(q)), k, v)


@pytest.mark.parametrize("what", ["a call", "a recorded call", "both passes"])
def test_it_costs_the_host_no_more_than_pytorch_s_own(what: str) -> None:
    qkv = [x.requires_grad_(what != "a call") for x in tensors(length=64)]
    d_o = torch.randn_like(qkv[0])

    def call() -> object:
        o = sdpa(*qkv)
        return torch.autograd.grad(o, qkv, d_o) if what == "both passes" else o

    rounds: list[tuple[float, float]] = []
    for _ in range(22):
        flash_attention.enable()
        call(), call()
        cost = microseconds(call)
        flash_attention.disable()
        call()
        rounds.append((cost, microseconds(call)))
    found, theirs = (statistics.median(x) for x in zip(*rounds[1:], strict=True))
    print(f"{what} of scaled_dot_product_attention: {found:.2f} us, PyTorch's own {theirs:.2f} us")
    assert found <= theirs
