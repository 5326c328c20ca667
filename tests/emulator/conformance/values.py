"""Inputs of the micro-kernels: edge values against edge values, then single edges and random bits.

Bits come from a generator of our own, since numpy may change its streams from release to release,
and the recorded answers are only good for exactly these inputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

N = 512  # threads of a scalar micro-kernel
EDGES = 18  # the first 18 * 18 threads see all pairs

U32 = [0, 1, 2, 3, 7, 31, 32, 33, 64, 255, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE,
       0xFFFFFFFF, 0x12345678, 0xDEADBEEF, 0x00FF00FF]  # fmt: skip
U64 = [0, 1, 2, 3, 63, 64, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 1,
       (1 << 64) - 2, (1 << 32) - 1, 0xFFFFFFFF80000000, 0x123456789ABCDEF0, 0xDEADBEEFCAFEF00D,
       5_000_000_000]  # fmt: skip
# ±0, numbers, one more than 1, largest, smallest normal, subnormals, infinities, quiet and
# signalling NaN with payloads.
F32 = [0x00000000, 0x80000000, 0x3F800000, 0xBFC00000, 0x40200000, 0xC0600000, 0x3DCCCCCD,
       0x477FE000, 0x3F800001, 0x7F7FFFFF, 0xFF7FFFFF, 0x00800000, 0x807FFFFF, 0x00000001,
       0x7F800000, 0xFF800000, 0x7FC12345, 0xFF812345]  # fmt: skip
F64 = [0, 1 << 63, 0x3FF << 52, 0xBFF8 << 48, 0x4004 << 48, 0xC00C << 48, 0x3FB999999999999A,
       0x40EFFC0000000000, (0x3FF << 52) + 1, 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF, 1 << 52,
       (1 << 63) + (1 << 52) - 1, 1, 0x7FF << 52, 0xFFF << 52, 0x7FF8000000012345,
       0xFFF0000000012345]  # fmt: skip
# The same bits are read as f16 and as bf16.
F16 = [0x0000, 0x8000, 0x3C00, 0xBE00, 0x3C01, 0x7BFF, 0xFBFF, 0x0400, 0x03FF, 0x8001, 0x7C00,
       0xFC00, 0x7E01, 0xFD01, 0x3F80, 0x7F7F, 0x0080, 0xFF80]  # fmt: skip

# Halfway and just beside it for narrowing to f16, bf16 and tf32, with the ends of their ranges;
# halves and the ends of integer ranges; the ends of what ex2 can represent; angles.
SINGLES = [
    *(1 + 2.0**-11, 1 + 3 * 2.0**-11, -1 - 2.0**-11 - 2.0**-23, 2.0**-25, 3 * 2.0**-25, 2.0**-24),
    *(2.0**-25 + 2.0**-48, 65519.99609375, 65520.0, -65535.0, 2.0**-14 - 2.0**-25, 65536.0),
    *(1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8 - 2.0**-23, 1 + 2.0**-12, 1 + 2.0**-12 + 2.0**-23),
    *(0.5, 1.5, -0.5, -1.5, -2.5, 0.25, 0.75, 0.99999994, 8388607.5, 16777216.0, 126.5, 127.5),
    *(-128.5, 255.5, 32767.5, 2.0**31, 2.0**31 - 128, -(2.0**31), -(2.0**31) - 256, 2.0**32),
    *(2.0**32 - 256, 2.0**63, -(2.0**63), 2.0**64, 2.0**64 - 2.0**40, 1e10, -1e10),
    *(128.0, 127.99999, -126.0, -126.5, -127.0, -149.0, -149.5, -150.0, -151.0, 1e-8, -1e-8, 88.7),
    *(3.1415927, -1.5707964, 6.2831855, 1e5, 0.7071068, 2.0, 4.0, 0.9, 1.1, 3.0),
]  # fmt: skip
SINGLE_BITS = [0x7F7F8000, 0x7F7F7FFF, 0x00008000, 0x00018000, 0x00007FFF, 0x807FF000, 0x7FFFFFFF]


def random_bits(seed: int, count: int) -> Any:
    """uint64 values of the SplitMix64 generator."""
    with np.errstate(over="ignore"):
        state = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        state += np.uint64(seed) * np.uint64(0xD1342543DE82EF95)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return state ^ (state >> np.uint64(31))


def random_f32(seed: int, count: int, spread: int = 10) -> Any:
    """Both signs, magnitudes from 2^-spread to 2^spread."""
    bits = random_bits(seed, count)
    exponent = 127 - spread + (bits >> np.uint64(32)) % np.uint64(2 * spread)
    magnitude = exponent << np.uint64(23) | bits & np.uint64(0x7FFFFF)
    return (magnitude | bits >> np.uint64(63) << np.uint64(31)).astype(np.uint32).view(np.float32)


def _operands(edges: list[int], dtype: Any, seed: int) -> list[Any]:
    """Operands a, b, c: all pairs of edges (c another edge), then random bits."""
    assert len(edges) == EDGES
    values = np.array(edges, dtype)
    i = np.arange(EDGES * EDGES)
    rows = (i % EDGES, i // EDGES, (5 * i + i // EDGES) % EDGES)
    tail = N - EDGES * EDGES
    return [
        np.concatenate([values[row], random_bits(seed + j, tail).astype(dtype)])
        for j, row in enumerate(rows)
    ]


def _float_operands() -> list[Any]:
    """Behind the pairs: a takes the single edges; then numbers of like magnitude, where b and c
    make products and sums that cancel; the rest stays random bits."""
    a, b, c = operands = _operands(F32, np.uint32, 10)
    start = EDGES * EDGES
    singles = np.concatenate([np.array(SINGLES, np.float32).view(np.uint32),
                              np.array(SINGLE_BITS, np.uint32)])  # fmt: skip
    a[start : start + len(singles)] = singles
    near = slice(start + len(singles), start + len(singles) + 72)
    for j, operand in enumerate(operands):
        operand[start : near.stop] = np.where(
            np.arange(near.stop - start) < (len(singles) if j == 0 else 0),
            operand[start : near.stop],
            random_f32(20 + j, near.stop - start, 6).view(np.uint32),
        )
    product = a[near].view(np.float32) * b[near].view(np.float32)
    c[near][::2] = (-product).view(np.uint32)[::2]
    return operands


def _double_operands() -> list[Any]:
    """Behind the pairs, half of what follows lies near the ends and halves of f32."""
    operands = _operands(F64, np.uint64, 30)
    start, count = EDGES * EDGES, 2 * len(SINGLES)
    values = np.array(SINGLES, np.float64)
    nudged = np.concatenate([values, values]).view(np.uint64)
    nudged[len(SINGLES) :] += np.uint64(1)
    operands[0][start : start + count] = nudged
    return operands


def _packed(halves: list[Any]) -> list[Any]:
    return [
        half.astype(np.uint32) | np.roll(half, 7 + j).astype(np.uint32) << 16
        for j, half in enumerate(halves)
    ]


_HALVES = _operands(F16, np.uint16, 40)
# By register class: b32, b64, f32, f64, b16, and pairs of b16 in a b32.
OPERANDS: dict[str, list[Any]] = {
    "r": _operands(U32, np.uint32, 0),
    "x": _operands(U64, np.uint64, 5),
    "f": [bits.view(np.float32) for bits in _float_operands()],
    "d": [bits.view(np.float64) for bits in _double_operands()],
    "h": _HALVES,
    "v": _packed(_HALVES),
}
