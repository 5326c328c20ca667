"""flash-attn's names."""

from __future__ import annotations

import pytest
import torch

import flash_attention
from flash_attention import compat
from flash_helpers.check.tolerance import bitwise_equal


def test_packed_tensors() -> None:
    qkv = torch.randn(1, 24, 3, 2, 64, dtype=torch.float16)
    q, k, v = qkv.unbind(2)
    expected = flash_attention.flash_attn_func(q, k, v, causal=True, softmax_scale=0.2)
    options = {"causal": True, "softmax_scale": 0.2}
    for found in (
        compat.flash_attn_qkvpacked_func(qkv, **options),
        compat.flash_attn_kvpacked_func(q, qkv[:, :, 1:], **options),
        compat.flash_attn_func(q, k, v, causal=True, softmax_scale=0.2),
    ):
        assert isinstance(found, torch.Tensor) and isinstance(expected, torch.Tensor)
        assert bitwise_equal(found, expected)


@pytest.mark.parametrize("shape", [(1, 24, 2, 2, 64), (1, 24, 3, 64)])
def test_a_packed_tensor_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"qkv has shape \(1, 24.*expected \(batch, seq, 3, heads"):
        compat.flash_attn_qkvpacked_func(torch.zeros(shape, dtype=torch.float16))


def test_what_is_not_here_is_asked_for_as_usual() -> None:
    assert not hasattr(compat, "flash_attn_varlen_qkvpacked_func")
    assert set(compat.__all__) <= set(vars(compat))
