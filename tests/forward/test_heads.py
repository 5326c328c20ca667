"""flash_attn_func with head dimensions that no dense kernel has, and values narrower than keys: in
the emulator, compared with attention in fp64. What PyTorch makes of them: tests/torch_op."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch.nn.functional import pad

from flash_attention import attention, heads, plain_gradients
from flash_attention.checks.readable import filled_up
from flash_helpers.base.dtypes import DType
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import ROW_FACTOR, bitwise_equal
from flash_helpers.kernels.problem import MAX_HEAD_DIMENSION
from flash_helpers.kernels.sm80_bwd.family import Sm80Backward
from flash_helpers.kernels.sm80_bwd_serve.family import Sm80BackwardServe
from flash_helpers.kernels.sm80_fwd.family import Sm80Forward
from tests.head_calls import Qkv, attend, check, check_gradients, draw

FP16, BF16 = torch.float16, torch.bfloat16
# Multiples of 8, others, and values narrower than keys: below and above the dense kernels' 64, 128.
KINDS = [
    (8, 8, FP16), (36, 36, FP16), (36, 36, BF16), (40, 40, BF16), (72, 72, FP16), (80, 80, FP16),
    (80, 80, BF16), (112, 112, FP16), (128, 50, FP16), (160, 160, FP16), (192, 128, FP16),
    (192, 128, BF16), (200, 200, BF16),
]  # fmt: skip


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Choices that were made with other preferences."""
    heads.forget()
    plain_gradients.chosen.cache_clear()
    yield
    heads.forget()
    plain_gradients.chosen.cache_clear()


def prefer_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU does whose dense kernels are worth a copy."""
    for family in (Sm80Forward, Sm80Backward):
        monkeypatch.setattr(family, "preference", lambda *_: 2)


def prefer_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sm80BackwardServe, "preference", lambda *_: 2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("d", "d_v", "dtype"), KINDS, ids=str)
def test_outputs(d: int, d_v: int, dtype: torch.dtype, causal: bool) -> None:
    check(draw(d, d_v, dtype), causal=causal)


@pytest.mark.parametrize(("d", "d_v", "dtype"), [kind for kind in KINDS if kind[0] > 8], ids=str)
def test_gradients(d: int, d_v: int, dtype: torch.dtype) -> None:
    check_gradients(draw(d, d_v, dtype), causal=True, with_d_lse=d % 3 == 0)


@pytest.mark.parametrize(("d", "d_v"), [(36, 36), (104, 104), (112, 20)])
def test_copies_for_dense_kernels(d: int, d_v: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU of compute capability 9.0 does, by the emulator's own dense kernels."""
    prefer_dense(monkeypatch)
    monkeypatch.setattr(attention, "served", lambda *_, **__: pytest.fail("it was served"))
    check(draw(d, d_v), causal=True)
    check_gradients(draw(d, d_v), softmax_scale=0.3)


@pytest.mark.parametrize(("d", "d_v"), [(36, 36), (80, 24)])
def test_gradients_by_kernels_that_serve(d: int, d_v: int, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer_serving(monkeypatch)
    monkeypatch.setattr("flash_attention.autograd.gradients_of", lambda *_: pytest.fail("dense"))
    check_gradients(draw(d, d_v), causal=True, with_d_lse=True)


@pytest.mark.parametrize("d", [1, 8])
def test_heads_of_few_elements(d: int) -> None:
    """Where values cancel an error is large beside the output; beside the weighted values it is
    within the row rule. The gradients are those of heads that are filled up by hand."""
    q, k, v = draw(d, d)
    o = attend(q, k, v)
    expected, _ = attention_reference(q, k, v, fp64=True)
    weighted, _ = attention_reference(q, k, v.abs(), fp64=True)
    error = (o - expected).norm(dim=-1) / weighted.norm(dim=-1)
    assert error.max() <= ROW_FACTOR * DType.FP16.eps
    leaves = [x.requires_grad_() for x in (q, k, v)]
    d_o = torch.randn_like(o)
    found = torch.autograd.grad(attend(*leaves), leaves, d_o)
    wide = attend(*(pad(x, (0, 64 - d)) for x in leaves), softmax_scale=d**-0.5)
    by_hand = torch.autograd.grad(wide[..., :d], leaves, d_o)
    for one, other, x in zip(found, by_hand, leaves, strict=True):
        assert one.shape == x.shape
        torch.testing.assert_close(one, other, rtol=5e-3, atol=2e-3)


@pytest.mark.parametrize("prefer", [None, prefer_dense])
@pytest.mark.parametrize("scale", [0.3, 0.0, -0.3])
def test_scales(
    scale: float,
    prefer: Callable[[pytest.MonkeyPatch], None] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if prefer is not None:
        prefer(monkeypatch)
    check(draw(36, 36), scale=scale)
    if scale:
        check_gradients(draw(36, 36), softmax_scale=scale)


def _packed() -> Qkv:
    q, k, v = torch.randn(2, 37, 3, 2, 36, dtype=FP16).unbind(2)
    return q, k, v


def _heads_first(d: int) -> Qkv:
    q, k, v = (torch.randn(2, 2, 37, d, dtype=FP16).transpose(1, 2) for _ in range(3))
    return q, k, v


def _strided_last() -> Qkv:
    q, k, v = (torch.randn(2, 2, 80, 37, dtype=FP16).permute(0, 3, 1, 2) for _ in range(3))
    return q, k, v


def _misaligned() -> Qkv:
    q, k, v = (torch.randn(2 * 37 * 2 * 80 + 1).half()[1:].view(2, 37, 2, 80) for _ in range(3))
    return q, k, v


def _negated() -> Qkv:
    q, k, v = draw(36, 36)
    return q, torch._neg_view(k), torch._neg_view(v)


LAYOUTS = {
    "packed": _packed, "heads first, filled up": lambda: _heads_first(36),
    "heads first": lambda: _heads_first(80), "strided last": _strided_last,
    "misaligned": _misaligned, "negated": _negated,
}  # fmt: skip


@pytest.mark.parametrize("prefer", [None, prefer_dense])
@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(
    name: str,
    prefer: Callable[[pytest.MonkeyPatch], None] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if prefer is not None:
        prefer(monkeypatch)
    torch.manual_seed(0)
    qkv = LAYOUTS[name]()
    o = check(qkv, causal=True)
    like = torch.empty_like(qkv[0])
    assert o.stride() == (like.stride() if like.stride(3) == 1 else torch.empty(o.shape).stride())
    check_gradients(qkv)


@pytest.mark.parametrize("prefer", [None, prefer_dense])
def test_memory_that_holds_anything(
    prefer: Callable[[pytest.MonkeyPatch], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here NaN: none of it is seen."""
    if prefer is not None:
        prefer(monkeypatch)
    torch.use_deterministic_algorithms(True)  # which fills new memory
    try:
        assert torch.empty(8).isnan().all()
        assert not filled_up(torch.ones(2, 3, dtype=FP16), 8).isnan().any()
        check(draw(36, 20))
        check_gradients(draw(36, 20), causal=True)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("prefer", [None, prefer_dense])
def test_no_keys_no_queries_and_blind_rows(
    prefer: Callable[[pytest.MonkeyPatch], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if prefer is not None:
        prefer(monkeypatch)
    assert not check(draw(36, 20, lengths=(5, 0))).any()
    found = check(draw(80, 80, lengths=(20, 7)), causal=True)
    assert not found[:, :13].any()
    q, k, v = draw(36, 20, lengths=(0, 9))
    o, lse, _ = attend(q, k, v, return_attn_probs=True)
    assert o.shape == (2, 0, 4, 20) and lse.shape == (2, 4, 0)
    leaves = [x.requires_grad_() for x in draw(36, 20, lengths=(5, 0))]
    assert not torch.autograd.grad(attend(*leaves).sum(), leaves)[0].any()
    leaves = [x.requires_grad_() for x in (q, k, v)]
    assert not torch.autograd.grad(attend(*leaves).sum(), leaves)[2].any()


def test_the_same_bits_each_time() -> None:
    leaves = [x.requires_grad_() for x in draw(36, 20)]
    o, again = (attend(*leaves, deterministic=True) for _ in range(2))
    assert bitwise_equal(o.detach(), again.detach())
    d_o = torch.randn_like(o)
    found = (torch.autograd.grad(x, leaves, d_o) for x in (o, again))
    assert all(bitwise_equal(a, b) for a, b in zip(*found, strict=True))


def test_only_the_gradients_asked_for() -> None:
    q, k, v = draw(36, 20)
    v.requires_grad_()
    attend(q, k, v).sum().backward()
    assert v.grad is not None and q.grad is None and k.grad is None


def test_values_narrower_than_keys_with_a_window() -> None:
    q, k, v = draw(64, 40)
    o = attend(q, k, v, window_size=(9, 0))
    whole = attend(q, k, pad(v, (0, 24)), window_size=(9, 0))
    assert o.shape == (2, 37, 4, 40) and bitwise_equal(o, whole[..., :40].contiguous())


def test_the_widest_and_what_is_wider() -> None:
    assert max(d for d in Sm80BackwardServe.HEAD_DIMENSIONS) == MAX_HEAD_DIMENSION
    check(draw(256, 248))
    q, k, v = draw(264, 264)
    for options in ({}, {"window_size": (9, 0)}):
        with pytest.raises(ValueError, match="q has head dimension 264: at most 256"):
            attend(q, k, v, **options)
    with pytest.raises(ValueError, match="v has head dimension 264: at most 256"):
        attend(q[..., :256], k[..., :256], v)


def test_autocast() -> None:
    q, k, v = draw(36, 36)
    with torch.autocast("cpu", dtype=FP16):
        assert bitwise_equal(attend(q.float(), k, v.float()), attend(q, k, v))
