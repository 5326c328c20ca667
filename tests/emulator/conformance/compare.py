"""How far the emulator's results may lie from the recorded ones.

* Data movement, integers, conversions, comparisons, f32 min/max and all arithmetic that PTX rounds
  correctly: equal bits.
* NaN: results of f32 and f64 arithmetic (neg, abs and f64 min/max included) only have to be NaN on
  both sides, because PTX leaves their payload open (the H200 yields 0x7FFFFFFF in f32 and an
  operand's in f64, x86 an operand's in both). Moved and converted NaN have equal bits.
* .approx functions: the error that NVIDIA documents, in ulp of the result, plus 1 for ours; where
  it documents an absolute error, that.
* mma: equal bits, NaN included. The H200 aligns all products of one instruction (16, or 8 of tf32)
  and C to the largest exponent, that of a product being the sum of its factors' exponents; cuts
  them to 25 bits behind the point; adds them exactly; and cuts the sum to the 24 bits of f32. The
  emulator does the same. Against exact sums that is 17 times a quarter unit and one unit, so less
  than 5.25 units in the last place of |c| + sum |a b|.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .micro_kernel import Case
from .scalar_kernels import ABSOLUTE
from .values import OPERANDS
from .warp_kernels import mma_inputs

_BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def mismatches(case: Case, actual: Any, expected: Any) -> Any:
    """Indices of the results that are not as they may be."""
    if actual.dtype.kind != "f":
        return np.flatnonzero((actual != expected) & _is_defined(case))
    same = actual.view(_BITS[actual.itemsize]) == expected.view(_BITS[actual.itemsize])
    if case.any_nan:
        same |= np.isnan(actual) & np.isnan(expected)
    if case.bound:
        with np.errstate(all="ignore"):
            error = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
        same |= error <= tolerance(case, expected)  # false for NaN and unequal infinities
    return np.flatnonzero(~same & _is_defined(case))


def _is_defined(case: Case) -> Any:
    """Where NVIDIA documents the result: fields of 64 bits with places up to 255, angles up to 2 pi
    (and what is no number)."""
    if case.form.startswith(("bfe.u64", "bfe.s64", "bfi.b64")):
        return (OPERANDS["r"][1] <= 255) & (OPERANDS["r"][2] <= 255)
    if case.form.startswith(("sin", "cos")):
        angles = np.abs(OPERANDS["f"][0])
        return ~(angles > np.float32(6.2831855)) | np.isinf(angles)
    return True


def tolerance(case: Case, expected: Any) -> Any:
    absolute = ABSOLUTE.get(case.form.split(".")[0], 0.0)
    return np.maximum(case.bound * ulp(expected), absolute)


def ulp(values: Any) -> Any:
    """The spacing of f32 at these magnitudes, as f64, also beyond its range; 0 for infinities."""
    magnitudes = np.abs(values.astype(np.float64))
    with np.errstate(all="ignore"):
        spacing = np.exp2(np.maximum(np.floor(np.log2(magnitudes)) - 23, -149))
    return np.where(np.isfinite(magnitudes), spacing, 0.0)


def _widened(bits: Any, kind: str) -> Any:
    if kind == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    halves = bits.view(np.uint16)
    if kind == "f16":
        return halves.view(np.float16).astype(np.float64)
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


@np.errstate(invalid="ignore")
def mma_matrices(kind: str, sets: Sequence[str]) -> tuple[Any, Any, Any]:
    """A [set][16][k], B [set][k][8] and C [set][16][8] of the micro-kernel, in f64."""
    inputs, n_sets = mma_inputs(kind, sets), len(sets)
    pair = 1 if kind == "tf32" else 2
    # Lane 4 g + t holds rows g and g + 8, columns (t, t + 4) * pair of A, and so on.
    a = _widened(inputs["a"], kind).reshape(n_sets, 8, 4, 2, 2, pair)  # g t column-half row-half
    b = _widened(inputs["b"], kind).reshape(n_sets, 8, 4, 2, pair)
    c = inputs["c"].view(np.float32).astype(np.float64).reshape(n_sets, 8, 4, 2, 2)
    return (
        a.transpose(0, 4, 1, 3, 2, 5).reshape(n_sets, 16, 8 * pair),
        b.transpose(0, 3, 2, 4, 1).reshape(n_sets, 8 * pair, 8),
        c.transpose(0, 3, 1, 2, 4).reshape(n_sets, 16, 8),
    )


@np.errstate(all="ignore")
def mma_exact(kind: str, sets: Sequence[str]) -> tuple[Any, Any]:
    """c + sum a b in f64, which rounds far finer than f32, and how far an mma may be off, both in
    the order of the results."""
    a, b, c = mma_matrices(kind, sets)
    tolerance = 5.25 * ulp(np.abs(a) @ np.abs(b) + np.abs(c))
    exact, tolerance = (
        values.reshape(-1, 2, 8, 4, 2).transpose(0, 2, 3, 1, 4).reshape(-1)
        for values in (a @ b + c, tolerance)
    )
    return exact, tolerance
