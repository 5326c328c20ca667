"""Copies of tensors that kernels cannot read."""

import torch

from .memory import ALIGNMENT_BYTES, ALIGNMENT_ELEMENTS


def readable(x: torch.Tensor) -> torch.Tensor:
    """The tensor (batch, seq, heads, d), or a copy that a kernel can read: contiguous in its last
    dimension, other strides multiples of 16 bytes, aligned, not negated."""
    strides = [s for s, n in zip(x.stride()[:3], x.shape[:3], strict=True) if n > 1]
    strided = x.stride(3) != 1 or any(s % ALIGNMENT_ELEMENTS for s in strides)
    if not strided and not x.data_ptr() % ALIGNMENT_BYTES and not x.is_neg():
        return x
    return x.resolve_neg().clone(memory_format=torch.contiguous_format)
