"""The tensors of an elementwise call, with as few dimensions as describe them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

MOST_DIMENSIONS = 4
_INT32 = 2**31 - 1


@dataclass(frozen=True)
class Elements:
    """`strides` has, for each tensor, one for every dimension of `shape`; `aligned`: all of them
    begin at a multiple of 16 bytes."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    alpha: float = 0.0
    aligned: bool = True

    @property
    def n(self) -> int:
        return math.prod(self.shape)

    @property
    def flat(self) -> bool:
        """No gaps, and the same order in all tensors."""
        return all(stride == (1,) for stride in self.strides)

    @property
    def wide(self) -> bool:
        """Some element is farther from the first than a 32-bit number says."""
        reach = [
            sum((n - 1) * s for n, s in zip(self.shape, strides, strict=True))
            for strides in self.strides
        ]
        return max(self.n, *reach) > _INT32


def elements(tensors: Sequence[torch.Tensor], alpha: float, aligned: bool) -> Elements:
    """Of tensors of one shape; dimensions that lie in all of them like one become one."""
    shape, strides = _merged(tensors)
    dtype = str(tensors[0].dtype).removeprefix("torch.")
    return Elements(dtype, shape, strides, alpha, aligned)


def _merged(
    tensors: Sequence[torch.Tensor],
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Dimensions in the order of the last tensor's strides, merged where all tensors allow it."""
    shape = tensors[0].shape
    last = tensors[-1].stride()
    order = sorted((i for i, n in enumerate(shape) if n != 1), key=lambda i: -last[i])
    sizes: list[int] = []
    strides: list[list[int]] = []  # of each dimension that is kept, all tensors'
    for i in order:
        here = [tensor.stride(i) for tensor in tensors]
        if sizes and all(a == shape[i] * b for a, b in zip(strides[-1], here, strict=True)):
            sizes[-1], strides[-1] = sizes[-1] * shape[i], here
        else:
            sizes.append(shape[i])
            strides.append(here)
    if not sizes:
        return (1,), ((1,),) * len(tensors)
    return tuple(sizes), tuple(zip(*strides, strict=True))
