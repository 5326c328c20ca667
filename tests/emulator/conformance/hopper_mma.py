"""How an H200 computes mma.sync with f32 accumulators, bit for bit.

All products of one instruction (16, or 8 of tf32) and C are aligned to the largest exponent, where
that of a product is the sum of its factors' exponents; what lies below 25 bits behind the binary
point is cut off; the sum is exact and is cut to the 24 bits of f32. Nothing is rounded to nearest,
subnormals count in full, no partial sum overflows. Found by trying alignments, widths and numbers
of steps against the recorded answers; all other combinations leave differences.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compare import mma_matrices, pack_results

_FRACTION_BITS = 25
_ZERO = -10_000  # the exponent of 0: below every other


def _exponents(values: Any, least: int) -> Any:
    """floor(log2 |x|), not below that of the format's smallest normal number."""
    return np.where(values == 0, _ZERO, np.maximum(np.frexp(values)[1] - 1, least))


def _cut(values: Any, exponents: Any, bits: int) -> Any:
    return np.ldexp(np.trunc(np.ldexp(values, bits - exponents)), exponents - bits)


@np.errstate(all="ignore")
def hopper_mma(kind: str) -> Any:
    """The results of the mma micro-kernel, in order, as f32."""
    a, b, c = mma_matrices(kind)
    least = -14 if kind == "f16" else -126
    rows, columns = a[:, :, None, :], b.transpose(0, 2, 1)[:, None, :, :]
    products = rows * columns  # exact in f64
    exponents = _exponents(rows, least) + _exponents(columns, least)
    terms = np.concatenate([products, c[..., None]], -1)
    exponents = np.concatenate([exponents, _exponents(c, -126)[..., None]], -1)
    largest = np.maximum(exponents.max(-1), -1000)[..., None]
    total = _cut(terms, largest, _FRACTION_BITS).sum(-1)
    total = _cut(total, _exponents(total, -126), 23)
    return pack_results(total).astype(np.float32)
