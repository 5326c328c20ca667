"""What scalar PTX instructions compute, in numpy and Python integers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np


def signed(values: Any) -> Any:
    return values.view({4: np.int32, 8: np.int64}[values.itemsize])


def wide(values: Any) -> Any:
    return values.astype(object)


def bits32(values: Any) -> Any:
    return np.array([int(v) & 0xFFFFFFFF for v in values], np.uint32)


def bits64(values: Any) -> Any:
    return np.array([int(v) & 0xFFFFFFFFFFFFFFFF for v in values], np.uint64)


def each(function: Callable[..., int]) -> Callable[..., Any]:
    """A Python function of ints over 32-bit lanes."""
    return lambda *operands: bits32(
        function(*map(int, items)) for items in zip(*operands, strict=True)
    )


def signed_int(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def bfe(value: int, position: int, length: int, signed: bool) -> int:
    position, length = position & 255, length & 255
    if length == 0:
        return 0
    sign = value >> min(position + length - 1, 31) & 1 if signed else 0
    bits = [
        value >> (position + i) & 1 if i < length and position + i < 32 else sign for i in range(32)
    ]
    return sum(bit << i for i, bit in enumerate(bits))


def bfi(field: int, base: int, position: int, length: int) -> int:
    position, length = position & 255, length & 255
    for i in range(length):
        if position + i < 32:
            base = (
                base & ~(1 << position + i) | (field >> i & 1) << (position + i) if i < 32 else base
            )
    return base


def ftz(values: Any) -> Any:
    return np.where(
        np.abs(values) < np.float32(2.0**-126), np.copysign(np.float32(0), values), values
    )


def fma(a: Any, b: Any, c: Any) -> Any:
    # The product is exact in f64; longdouble holds the sum well enough to round correctly here.
    return (a.astype(np.longdouble) * b + c).astype(np.float32)


def minimum(a: Any, b: Any) -> Any:
    return np.where((a == b) & np.signbit(a), a, np.fmin(a, b))


def maximum(a: Any, b: Any) -> Any:
    return np.where((a == b) & ~np.signbit(a), a, np.fmax(a, b))


def to_int(values: Any, low: int, high: int, rounding: Callable[[Any], Any]) -> Any:
    clipped = np.clip(rounding(values.astype(np.float64)), low, high)
    return bits32(np.where(np.isnan(values), 0, clipped))


def bf16(values: Any) -> Any:
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype(
        np.uint16
    )
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)


def f16(values: Any) -> Any:
    return np.where(np.isnan(values), np.uint16(0x7FFF), values.astype(np.float16).view(np.uint16))


def pack(high: Any, low: Any) -> Any:
    return high.astype(np.uint32) << 16 | low


def half_op(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An f16x2 operation on the bits of 32-bit operands."""

    def compute(*operands: Any) -> Any:
        halves = [
            [(o >> shift & 0xFFFF).astype(np.uint16).view(np.float16) for o in operands]
            for shift in (16, 0)
        ]
        results = [operation(*half).astype(np.float16) for half in halves]
        return pack(*(np.where(np.isnan(r), 0x7FFF, r.view(np.uint16)) for r in results))

    return compute


def add_toward_zero(a: Any, b: Any) -> Any:
    nearest = a + b
    for i in np.flatnonzero(np.isfinite(a) & np.isfinite(b)):
        exact = Fraction(float(a[i])) + Fraction(float(b[i]))
        if np.isinf(nearest[i]) or abs(Fraction(float(nearest[i]))) > abs(exact):
            nearest[i] = np.nextafter(nearest[i], np.float32(0))
    return nearest
