"""flash_attn_func on the GPU: right, remembered without mixing kinds of calls, captured, cheap."""

from __future__ import annotations

import pytest
import torch

import flash_attention
from flash_attention import dispatch
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import bitwise_equal, compare
from tests.gpu.times import HOST_BAR, host_cost

pytestmark = pytest.mark.gpu

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def head_dims(gradients: bool) -> set[int]:
    """That this build has for fp16."""
    kernels = flash_attention.available_kernels()
    fp16 = (c for c in kernels if c.dtype.name == "FP16" and not c.SERVES)
    return {c.d_head for c in fp16 if c.GRADIENTS is gradients}


@pytest.fixture
def d_head() -> int:
    return max(head_dims(gradients=False))


def draw(d_head: int, q_len: int, k_len: int, heads: int = 4, kv_heads: int = 2) -> Tensors:
    shapes = ((2, q_len, heads, d_head), *[(2, k_len, kv_heads, d_head)] * 2)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in shapes)
    return q, k, v


def check(o: object, tensors: Tensors, causal: bool = False) -> None:
    assert isinstance(o, torch.Tensor)
    reference, _ = attention_reference(*tensors, fp64=True, causal=causal)
    outcome = compare(o, reference)
    assert outcome.passed, outcome.describe()


@pytest.mark.parametrize("lengths", [(512, 512), (113, 203), (203, 113), (1, 4097), (4097, 1)])
def test_causal_and_not_are_kept_apart(d_head: int, lengths: tuple[int, int]) -> None:
    """The same shapes again and again: each kind of call is remembered as what it was."""
    for _ in range(3):
        tensors = draw(d_head, *lengths)
        check(flash_attention.flash_attn_func(*tensors), tensors)
        check(flash_attention.flash_attn_func(*tensors, causal=True), tensors, causal=True)
        o, lse, _ = flash_attention.flash_attn_func(*tensors, causal=True, return_attn_probs=True)
        check(o, tensors, causal=True)
        _, expected = attention_reference(*tensors, fp64=True, causal=True)
        torch.testing.assert_close(lse.double(), expected, atol=1e-3, rtol=0)
        scaled = flash_attention.flash_attn_func(*tensors, 0.0, 0.3)
        reference, _ = attention_reference(*tensors, 0.3, fp64=True)
        assert isinstance(scaled, torch.Tensor) and compare(scaled, reference).passed


def test_a_remembered_call_makes_no_choice(d_head: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = draw(d_head, 113, 203)
    first = flash_attention.flash_attn_func(*tensors, causal=True)
    monkeypatch.setattr(dispatch, "choose", lambda problem: pytest.fail("a choice was made"))
    again = flash_attention.flash_attn_func(*tensors, causal=True)
    assert isinstance(first, torch.Tensor) and isinstance(again, torch.Tensor)
    assert bitwise_equal(first, again)


def test_a_remembered_call_is_recorded_where_a_gradient_is_needed(d_head: int) -> None:
    """Or refused, where there are no kernels for it."""
    q, k, v = draw(d_head, 113, 203)
    flash_attention.flash_attn_func(q, k, v)
    for tensor in (q, k, v):
        tensor.requires_grad_()
        try:
            o = flash_attention.flash_attn_func(q, k, v)
            assert isinstance(o, torch.Tensor) and o.requires_grad
        except ValueError as error:
            assert d_head not in head_dims(gradients=True) and "head dimensions are" in str(error)
        else:
            assert d_head in head_dims(gradients=True)
        with torch.no_grad():
            flash_attention.flash_attn_func(q, k, v)
        tensor.requires_grad_(False)


def test_what_cannot_be_read_is_copied(d_head: int) -> None:
    base = torch.randn(3, 2, d_head, 113, 4, device="cuda", dtype=torch.float16)
    strided = base.permute(0, 1, 3, 4, 2)
    odd = torch.randn(3, 2, 113, 4, d_head + 1, device="cuda", dtype=torch.float16)[..., :d_head]
    shifted = torch.randn(3 * 2 * 113 * 4 * d_head + 1, device="cuda", dtype=torch.float16)[1:]
    for group in (strided, odd, shifted.view(3, 2, 113, 4, d_head)):
        q, k, v = group.unbind(0)
        for _ in range(2):
            check(flash_attention.flash_attn_func(q, k, v), (q, k, v))


@pytest.mark.parametrize("causal", [False, True])
def test_a_graph_replays_with_new_inputs(d_head: int, causal: bool) -> None:
    q, k, v = draw(d_head, 203, 339)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = flash_attention.flash_attn_func(q, k, v, causal=causal)
    for _ in range(2):
        for x in (q, k, v):
            x.copy_(torch.randn_like(x))
        graph.replay()
        check(o, (q, k, v), causal=causal)


def test_the_current_stream_is_used(d_head: int) -> None:
    q, k, v = draw(d_head, 203, 203)
    flash_attention.flash_attn_func(q, k, v, causal=True)
    expected = flash_attention.flash_attn_func(q * 2, k, v, causal=True)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)  # type: ignore[no-untyped-call]
        q.mul_(2)
        o = flash_attention.flash_attn_func(q, k, v, causal=True)
    side.synchronize()
    assert isinstance(o, torch.Tensor) and isinstance(expected, torch.Tensor)
    assert bitwise_equal(o, expected)


@pytest.mark.parametrize("length", [64, 63])
@pytest.mark.parametrize("causal", [False, True])
def test_a_call_costs_the_host_less_than_pytorch_s(d_head: int, length: int, causal: bool) -> None:
    shape = (1, length, 1, d_head)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))
    cost = host_cost(lambda: flash_attention.flash_attn_func(q, k, v, causal=causal), q, k, v)
    print(cost)
    assert cost.ratio <= HOST_BAR, str(cost)
