"""flash-attn's names."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import flash_attention
from flash_attention import compat
from flash_helpers.check.tolerance import bitwise_equal

STARTS = torch.tensor([0, 7, 24], dtype=torch.int32)
# In flash-attn's order, behind the tensors and their lengths.
OPTIONS = (
    "dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes",
    "deterministic", "return_attn_probs",
)  # fmt: skip


def test_packed_tensors() -> None:
    qkv = torch.randn(1, 24, 3, 2, 64, dtype=torch.float16)
    q, k, v = qkv.unbind(2)
    expected = flash_attention.flash_attn_func(q, k, v, causal=True, softmax_scale=0.2)
    options: dict[str, Any] = {"causal": True, "softmax_scale": 0.2}
    by_heads = torch.cat((q, k, v), dim=2)
    for found in (
        compat.flash_attn_qkvpacked_func(qkv, **options),
        compat.flash_attn_qkvpacked_func(by_heads, num_heads_q=2, **options),
        compat.flash_attn_kvpacked_func(q, qkv[:, :, 1:], **options),
        compat.flash_attn_func(q, k, v, causal=True, softmax_scale=0.2),
    ):
        assert isinstance(found, torch.Tensor) and isinstance(expected, torch.Tensor)
        assert bitwise_equal(found, expected)


def test_packed_tensors_of_different_lengths() -> None:
    qkv = torch.randn(24, 3, 2, 64, dtype=torch.float16)
    q, k, v = qkv.unbind(1)
    options: dict[str, Any] = {"causal": True, "window_size": (5, 0), "return_attn_probs": True}
    call = flash_attention.flash_attn_varlen_func
    expected: Any = call(q, k, v, STARTS, STARTS, 17, 17, **options)
    for found in (
        compat.flash_attn_varlen_qkvpacked_func(qkv, STARTS, 17, **options),
        compat.flash_attn_varlen_kvpacked_func(q, qkv[:, 1:], STARTS, STARTS, 17, 17, **options),
    ):
        o, lse, probs = found  # type: ignore[misc]
        assert bitwise_equal(o, expected[0]) and bitwise_equal(lse, expected[1]) and probs is None


@pytest.mark.parametrize("name", [name for name in compat.__all__ if "packed" in name])
def test_packed_functions_have_the_arguments_of_flash_attn(name: str) -> None:
    parameters = inspect.signature(getattr(compat, name)).parameters
    positional = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert tuple(positional[-len(OPTIONS) :]) == OPTIONS


PACKED_REFUSALS: dict[str, tuple[Callable[[], object], str]] = {
    "2 for 3": (
        lambda: compat.flash_attn_qkvpacked_func(torch.zeros(1, 24, 2, 2, 64)),
        r"qkv has shape \(1, 24, 2, 2, 64\): expected \(batch, seqlen, 3, heads, d_head\)",
    ),
    "heads": (
        lambda: compat.flash_attn_qkvpacked_func(torch.zeros(1, 24, 3, 64)),
        r"qkv has shape \(1, 24, 3, 64\): expected \(batch, seqlen, 3",
    ),
    "num_heads_q": (
        lambda: compat.flash_attn_qkvpacked_func(torch.zeros(1, 24, 7, 64), num_heads_q=4),
        r"num_heads_q is 4: expected \(batch, seqlen, num_heads_q \+ 2 \* kv_heads, d_head\)",
    ),
    "a batch": (
        lambda: compat.flash_attn_varlen_qkvpacked_func(torch.zeros(1, 24, 3, 2, 64), STARTS, 17),
        r"qkv has shape \(1, 24, 3, 2, 64\): expected \(total, 3, heads, d_head\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PACKED_REFUSALS)
def test_a_packed_tensor_of_another_shape_is_refused(case: str) -> None:
    call, message = PACKED_REFUSALS[case]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("unused", [False, True])
def test_padded_batches_are_packed_and_back(unused: bool) -> None:
    mask = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 1, 1]])
    others = torch.tensor([[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]) if unused else None
    x = torch.randn(3, 4, 2, requires_grad=True)
    rows, indices, starts, longest, used = compat.bert_padding.unpad_input(x, mask, others)
    kept = mask.bool() if others is None else (mask + others).bool()
    lengths = kept.sum(1)
    assert torch.equal(rows, x[kept]) and starts.dtype == used.dtype == torch.int32
    assert starts.tolist() == [0, *lengths.cumsum(0).tolist()] and longest == 3
    assert used.tolist() == [2, 0, 3]
    back = compat.bert_padding.pad_input(rows, indices, 3, 4)
    assert torch.equal(back, x * kept[..., None])
    assert torch.equal(compat.bert_padding.pad_input(rows, indices.int(), 3, 4), back)
    weights = torch.randn_like(back)
    (d_x,) = torch.autograd.grad(back, x, weights)
    assert torch.equal(d_x, weights * kept[..., None])


def test_rows_without_a_sequence() -> None:
    mask = torch.zeros(0, 4)
    rows, _, starts, longest, _ = compat.bert_padding.unpad_input(torch.zeros(0, 4, 2), mask)
    assert rows.shape == (0, 2) and starts.tolist() == [0] and longest == 0


def test_code_that_imports_flash_attn_gets_these(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("", ".flash_attn_interface", ".bert_padding"):
        monkeypatch.setitem(sys.modules, f"flash_attn{module}", None)
    compat.install()
    compat.install()  # what was installed before
    import flash_attn
    import flash_attn.flash_attn_interface as interface
    from flash_attn.bert_padding import (
        index_first_axis,
        pad_input,
        unpad_input,
    )

    assert flash_attn.flash_attn_varlen_func is flash_attention.flash_attn_varlen_func
    assert interface.flash_attn_with_kvcache is flash_attention.flash_attn_with_kvcache
    assert (index_first_axis, pad_input, unpad_input) == tuple(
        getattr(compat.bert_padding, name)
        for name in ("index_first_axis", "pad_input", "unpad_input")
    )


def test_a_package_that_is_there_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "find_spec", lambda name: name == "flash_attn" or None)
    with pytest.raises(RuntimeError, match="flash_attn is installed here: uninstall it first"):
        compat.install()


def test_what_is_not_here_is_asked_for_as_usual() -> None:
    assert not hasattr(compat, "flash_attn_combine")
    assert set(compat.__all__) <= set(vars(compat))
