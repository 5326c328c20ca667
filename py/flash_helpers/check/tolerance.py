"""When an output counts as right.

The row rule: the largest of ||o - ref|| / ||ref|| over all rows is at most 1.25 eps, where `ref`
is computed in fp32 and eps is half a unit in the last place (2^-11 for fp16, 2^-8 for bf16).
Measured on correct kernels it is 0.64 to 0.91 eps; a skipped block, a swapped row, one zeroed
16-byte store or a scale that is 1 % off all exceed it (tests/reference/test_tolerance.py), where
the elementwise rules of other libraries let several of them pass.

It is a rule of chance where a row has few elements and few keys: one key's weight, rounded, can be
most of the row. With d 64 and 65 to 130 normally distributed keys one row in a million of a kernel
whose maximum may lag is 1.26 to 1.30 eps off; none is where each weight is rounded below its row's
maximum, nor with d 128 or 300 keys (tests/forward/tensors.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..base.dtypes import DType
from ..base.lazy import torch

ROW_FACTOR = 1.25


@dataclass(frozen=True)
class Mismatch:
    """Where an output is first wrong: the first bad row, and the worst element in it."""

    index: tuple[int, ...]
    actual: float
    expected: float
    reason: str

    def __str__(self) -> str:
        return f"{self.reason} at {self.index}: got {self.actual:.6g}, expected {self.expected:.6g}"


@dataclass(frozen=True)
class Comparison:
    """The outcome of the row rule. `row_error` is inf when an element is NaN or wrongly inf."""

    max_abs_error: float
    row_error: float
    tolerance: float
    n_rows: int
    n_bad_rows: int
    first_mismatch: Mismatch | None

    @property
    def relative(self) -> float:
        """The worst row in units of the tolerance: at most 1 is right."""
        return self.row_error / self.tolerance

    @property
    def passed(self) -> bool:
        return self.n_bad_rows == 0

    def describe(self) -> str:
        worst = f"worst row {self.relative:.3g} of the tolerance {self.tolerance:.3g}"
        numbers = f"max abs error {self.max_abs_error:.3g}, {worst}"
        if self.passed:
            return f"all {self.n_rows} rows are right: {numbers}"
        wrong = f"{self.n_bad_rows} of {self.n_rows} rows are wrong"
        return f"{wrong}: {numbers}; first {self.first_mismatch}"


def compare(
    actual: torch.Tensor, reference: torch.Tensor, dtype: DType | None = None
) -> Comparison:
    """Apply the row rule. `reference` is fp32 or fp64; `dtype` (default: that of `actual`) is the
    type whose rounding is granted. NaN never passes, not even where the reference has one;
    infinities must stand at the same places with the same sign."""
    if actual.shape != reference.shape:
        raise ValueError(
            f"the output has shape {tuple(actual.shape)}, the reference {tuple(reference.shape)}"
        )
    if actual.numel() == 0:
        raise ValueError("the output is empty: nothing was compared")
    if reference.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"the reference must be fp32 or fp64, got {reference.dtype}")
    tolerance = ROW_FACTOR * (dtype or DType.from_torch_dtype(actual.dtype)).eps
    d_head = actual.shape[-1]
    got = actual.detach().to(reference.dtype).reshape(-1, d_head)
    expected = reference.reshape(-1, d_head)
    same_inf = got.isinf() & (got == expected)
    error = (got - expected).masked_fill_(same_inf, 0.0)
    error.masked_fill_(~error.isfinite(), float("inf"))  # NaN - x, inf - x: infinitely wrong
    finite = expected.masked_fill(same_inf, 0.0)
    norm, error_norm = finite.norm(dim=-1), error.norm(dim=-1)
    # A row of zeros must be met exactly (0 / 0 is 0 here); any other NaN is infinitely wrong.
    rows = torch.where(error_norm == 0, error_norm, error_norm / norm)
    rows.masked_fill_(rows.isnan() | norm.isnan(), float("inf"))
    bad = ~(rows <= tolerance)
    return Comparison(
        max_abs_error=float(error.abs().max()),
        row_error=float(rows.max()),
        tolerance=tolerance,
        n_rows=rows.numel(),
        n_bad_rows=int(bad.sum()),
        first_mismatch=_first_mismatch(bad, error, got, expected, actual.shape),
    )


def _first_mismatch(
    bad: torch.Tensor,
    error: torch.Tensor,
    got: torch.Tensor,
    expected: torch.Tensor,
    shape: torch.Size,
) -> Mismatch | None:
    if not bool(bad.any()):
        return None
    row = int(bad.int().argmax())  # the first True
    column = int(error[row].abs().argmax())
    index = [column]
    rest = row
    for extent in reversed(shape[:-1]):
        rest, position = divmod(rest, extent)
        index.insert(0, position)
    actual, wanted = float(got[row, column]), float(expected[row, column])
    return Mismatch(tuple(index), actual, wanted, _kind(actual, wanted))


def _kind(actual: float, wanted: float) -> str:
    if math.isnan(actual) or math.isnan(wanted):
        return "NaN"
    return "infinity" if math.isinf(actual) or math.isinf(wanted) else "difference"


def bitwise_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal as bits: NaN equals the same NaN, and -0 is not 0."""
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return a.dtype == b.dtype and torch.equal(a.view(bits), b.view(bits))
