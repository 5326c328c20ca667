"""How far the emulator's results may lie from the recorded ones.

* Data movement, integers, conversions, comparisons, f32 min/max and all arithmetic that PTX rounds
  correctly: equal bits.
* NaN: results of f32 and f64 arithmetic (neg, abs and f64 min/max included) only have to be NaN on
  both sides, because PTX leaves their payload open (the H200 yields 0x7FFFFFFF in f32 and an
  operand's in f64, x86 an operand's in both). Moved and converted NaN have equal bits.
* .approx functions: the error that NVIDIA documents, in ulp of the result, plus 1 for ours; where
  it documents an absolute error, that.
* mma: the H200 adds all products of one instruction in fixed point, as hopper_mma.py describes to
  the last bit: 17 truncations of a quarter unit at the most and one of the sum, so less than 5.25
  units in the last place of s = |c| + sum |a b|. The emulator rounds 16 sums, which are at most s,
  to nearest: 8 units. On our inputs, the two differ by at most `MMA_BOUND` = 4 units. Infinities
  and NaN agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .micro_kernel import Case
from .scalar_kernels import ABSOLUTE
from .values import OPERANDS
from .warp_kernels import LANES, MMA_FORMS, MMA_SETS, mma_inputs

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
    if case.form.startswith("mma"):
        kind = next(k for k, form in MMA_FORMS.items() if form == case.form)
        return case.bound * ulp(mma_magnitudes(kind))
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
def mma_matrices(kind: str) -> tuple[Any, Any, Any]:
    """A [set][16][k], B [set][k][8] and C [set][16][8] of the micro-kernel, in f64."""
    inputs, n_sets = mma_inputs(kind), len(MMA_SETS)
    pair = 1 if kind == "tf32" else 2
    # Lane 4 g + t holds rows g and g + 8, columns (t, t + 4) * pair of A, and so on.
    a = _widened(inputs["a"], kind).reshape(n_sets, 8, 4, 2, 2, pair)  # g t column-half row-half
    b = _widened(inputs["b"], kind).reshape(n_sets, 8, 4, 2, pair)
    return (
        a.transpose(0, 4, 1, 3, 2, 5).reshape(n_sets, 16, 8 * pair),
        b.transpose(0, 3, 2, 4, 1).reshape(n_sets, 8 * pair, 8),
        unpack_results(inputs["c"].view(np.float32)).astype(np.float64),
    )


def unpack_results(values: Any) -> Any:
    """C or D fragments [set][lane][4] as matrices [set][16][8]."""
    parts = values.reshape(len(MMA_SETS), 8, 4, 2, 2)
    return parts.transpose(0, 3, 1, 2, 4).reshape(len(MMA_SETS), 16, 8)


def pack_results(matrices: Any) -> Any:
    """The reverse."""
    parts = matrices.reshape(len(MMA_SETS), 2, 8, 4, 2)
    return parts.transpose(0, 2, 3, 1, 4).reshape(len(MMA_SETS) * LANES * 4)


def mma_magnitudes(kind: str) -> Any:
    """|c| + sum |a b| of every result, in the order of the results."""
    a, b, c = mma_matrices(kind)
    with np.errstate(all="ignore"):
        return pack_results(np.abs(a) @ np.abs(b) + np.abs(c))


def mma_exact(kind: str) -> Any:
    """c + sum a b in f64, which rounds far finer than f32, in the order of the results."""
    a, b, c = mma_matrices(kind)
    with np.errstate(all="ignore"):
        return pack_results(a @ b + c)
