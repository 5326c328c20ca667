"""Copies of tensors that kernels cannot read, and memory that they can write."""

import torch

from .memory import ALIGNMENT_BYTES, ALIGNMENT_ELEMENTS


def readable(x: torch.Tensor) -> torch.Tensor:
    """The tensor (batch, seq, heads, d), or a copy that a kernel can read: contiguous in its last
    dimension, other strides multiples of 16 bytes, aligned, not negated. What is made like the copy
    has the strides of what is made like the tensor."""
    strides = [s for s, n in zip(x.stride()[:3], x.shape[:3], strict=True) if n > 1]
    strided = x.stride(3) != 1 or any(s % ALIGNMENT_ELEMENTS for s in strides)
    if not strided and not x.data_ptr() % ALIGNMENT_BYTES and not x.is_neg():
        return x
    return writable_like(x).copy_(x)


def writable_like(x: torch.Tensor, d_head: int | None = None) -> torch.Tensor:
    """Uninitialised memory shaped like x (batch, seq, heads, d), or with narrower heads, in the
    order of the dimensions that x has in memory where kernels can write that. Its strides follow
    from those of x alone."""
    if d_head is not None and d_head != x.shape[-1]:
        x = x[..., :d_head]
    found = torch.empty_like(x)
    if found.dim() != 4 or found.stride(3) == 1:
        return found
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def filled_up(x: torch.Tensor, d_head: int) -> torch.Tensor:
    """The tensor (..., d), or a copy with zeros behind each head: they change no score, and no
    gradient of what is kept."""
    d = x.shape[-1]
    if d == d_head:
        return x
    filled = x.new_empty((*x.shape[:-1], d_head))
    filled[..., :d].copy_(x)
    filled[..., d:].zero_()
    return filled
