"""Tensors with NaN on both sides: reading beyond one shows in the result, writing in
`margins_ok`."""

from __future__ import annotations

import math

import torch

MARGIN = 512  # elements around a tensor
POISON = math.nan


def guarded(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    fill: torch.Tensor | None = None,
    device: str = "cpu",
) -> torch.Tensor:
    """With the values of `fill`, or else NaN inside, too."""
    n = math.prod(shape)
    base = torch.full((n + 2 * MARGIN,), POISON, dtype=dtype, device=device)
    inner = base[MARGIN : MARGIN + n].view(shape)
    if fill is not None:
        inner.copy_(fill)
    return inner


def margins_ok(tensor: torch.Tensor) -> bool:
    """Whether the poison around a `guarded` tensor is as it was."""
    storage = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
        tensor.untyped_storage()
    )
    left = storage[:MARGIN]
    right = storage[MARGIN + tensor.numel() :]
    return bool(left.isnan().all() and right.isnan().all())
