"""Operators on squares of n x n numbers, and what such a call costs."""

from __future__ import annotations

import functools
from typing import Any

import torch

from flash_attention import operators
from flash_attention.operators.show import SHOWN
from flash_attention.triton_kit.op import Work

from .benchmark import Call

Case = tuple[tuple[int, ...], Call, Work]
NAMES = (*SHOWN, "conv2d")
_IMAGES, _CHANNELS, _TAPS = 16, 64, 3


def case(name: str, n: int, dtype: torch.dtype, device: str) -> Case:
    """(shape, call, work). Of conv2d: 16 images of n / 16 x n / 16 pixels with 64 channels, which
    are 4 n x n numbers. Of operators that move numbers rather than compute, no operation counts."""
    draw: Any = functools.partial(torch.randn, dtype=dtype, device=device)
    if name == "conv2d":
        side, last = max(1, n // _IMAGES), torch.channels_last
        x = draw(_IMAGES, _CHANNELS, side, side).contiguous(memory_format=last)
        w = draw(_CHANNELS, _CHANNELS, _TAPS, _TAPS).contiguous(memory_format=last)
        call: Call = functools.partial(operators.conv2d, x, w, padding=_TAPS // 2)
        work = Work(2 * x.numel() * _CHANNELS * _TAPS**2, 2 * x.nbytes + w.nbytes)
        return tuple(x.shape), call, work
    shown = SHOWN[name]
    inputs = [draw(n, n) for _ in range(shown.n_inputs)]
    call = functools.partial(shown.call, *inputs)
    product = name == "matmul"
    made = n * n * dtype.itemsize if shown.columns == 0 or product else _nbytes(call())
    return (n, n), call, Work(2 * n**3 * product, sum(x.nbytes for x in inputs) + made)


def _nbytes(result: Any) -> int:
    tensors = result if isinstance(result, tuple) else (result,)
    return sum(int(x.nbytes) for x in tensors)
