"""The checker is checked: a right kernel passes, every planted bug is found."""

from __future__ import annotations

import math

import pytest
import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import ROW_FACTOR, bitwise_equal, compare
from tests.reference.fa2_rule import attention_low_precision, fa2_rule

SEQ, HEADS, D, TILE, BLOCK = 512, 2, 64, 64, 64
DTYPES = [torch.float16, torch.bfloat16]


def emulated_flash(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bug: str = ""
) -> torch.Tensor:
    """A tiled forward pass as the kernels do it, on one head: (seq, d). `bug` plants one."""
    scale = D**-0.5 * (1.01 if bug == "scale 1 % off" else 1.0)
    if bug == "two rows of V swapped":
        v = v[[1, 0, *range(2, SEQ)]]
    out = torch.empty_like(q)
    for tile, rows in enumerate(torch.arange(SEQ).view(-1, TILE)):
        m = torch.full((TILE, 1), -math.inf)
        total, acc = torch.zeros(TILE, 1), torch.zeros(TILE, D)
        for block, keys in enumerate(torch.arange(SEQ).view(-1, BLOCK)):
            here = tile == 3 and block == 4
            if (bug == "KV block skipped" and block == 4) or (
                bug == "KV block skipped in one tile" and here
            ):
                continue
            scores = q[rows].float() @ k[keys].float().T * scale
            if bug == "last key dropped" and block == SEQ // BLOCK - 1:
                scores[:, -1] = -math.inf
            new_m = torch.maximum(m, scores.amax(1, keepdim=True))
            rescale = torch.exp(m - new_m)
            p = torch.exp(scores - new_m)
            total = total * rescale + p.sum(1, keepdim=True)
            acc = (acc if bug == "O not rescaled" and here else acc * rescale) + (
                p.to(v.dtype).float() @ v[keys].float()
            )
            acc = acc.to(v.dtype).float() if bug == "16-bit accumulator" else acc
            m = new_m
        out[rows] = (acc / total).to(out.dtype)
    if bug == "row copied from its neighbour":
        out[100] = out[101]
    if bug == "16-byte store lost":
        out[77, 8:16] = 0
    return out


def run(dtype: torch.dtype, bug: str = "", seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """(output, fp32 reference), both (1, seq, heads, d)."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, SEQ, HEADS, D, generator=generator).to(dtype) for _ in range(3))
    heads = [emulated_flash(q[0, :, h], k[0, :, h], v[0, :, h], bug) for h in range(HEADS)]
    if bug == "heads swapped":
        heads.reverse()
    return torch.stack(heads, dim=1)[None], attention_reference(q, k, v)[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(3))
def test_a_right_kernel_passes(dtype: torch.dtype, seed: int) -> None:
    result = compare(*run(dtype, seed=seed))
    assert result.passed and result.first_mismatch is None
    assert 0.4 < result.relative < 0.9  # room to spare, but not so much that bugs hide in it
    assert result.tolerance == ROW_FACTOR * torch.finfo(dtype).eps / 2
    assert result.n_rows == SEQ * HEADS
    assert "all 1024 rows are right" in result.describe()


BUGS = [
    "KV block skipped", "KV block skipped in one tile", "two rows of V swapped", "O not rescaled",
    "scale 1 % off", "last key dropped", "row copied from its neighbour", "16-byte store lost",
    "16-bit accumulator", "heads swapped",
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bug", BUGS)
def test_every_planted_bug_is_found(dtype: torch.dtype, bug: str) -> None:
    result = compare(*run(dtype, bug))
    assert not result.passed and result.relative > 1
    assert result.first_mismatch is not None and "rows are wrong" in result.describe()


def test_the_first_mismatch_is_located() -> None:
    result = compare(*run(torch.float16, "16-byte store lost"))
    where = result.first_mismatch
    assert where is not None and result.n_bad_rows == HEADS
    assert where.index[:3] == (0, 77, 0) and 8 <= where.index[3] < 16
    assert where.actual == 0 and where.expected != 0 and where.reason == "difference"
    assert f"first difference at {where.index}: got 0, expected" in result.describe()


def plain(value: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    reference = torch.full((2, 3, 2, 8), value)
    return reference.to(torch.float16), reference


@pytest.mark.parametrize("both", [False, True])
def test_nan_never_passes_wherever_it_stands(both: bool) -> None:
    """Not even where the reference has one: a wildcard would accept anything there."""
    for index in [(0, 0, 0, 0), (1, 2, 1, 7)]:
        actual, reference = plain()
        actual[index] = math.nan
        if both:
            reference[index] = math.nan
        result = compare(actual, reference)
        assert not result.passed and result.row_error == result.max_abs_error == math.inf
        assert result.first_mismatch is not None
        assert (result.first_mismatch.index, result.first_mismatch.reason) == (index, "NaN")


def test_a_nan_in_the_reference_alone_does_not_pass() -> None:
    actual, reference = plain()
    reference[0, 0, 0, 0] = math.nan
    result = compare(actual, reference)
    assert not result.passed and result.row_error == math.inf


def test_an_unwritten_output_does_not_pass() -> None:
    _, reference = plain()
    assert not compare(torch.full_like(reference, math.nan).to(torch.float16), reference).passed


def test_infinities_must_stand_at_the_same_places_with_the_same_sign() -> None:
    actual, reference = plain()
    actual[0, 1, 0, 3] = reference[0, 1, 0, 3] = math.inf
    assert compare(actual, reference).passed
    actual[0, 1, 0, 3] = -math.inf
    wrong_sign = compare(actual, reference)
    actual[0, 1, 0, 3] = 1.0
    missing = compare(actual, reference)
    actual, reference = plain()
    actual[0, 1, 0, 3] = math.inf
    surplus = compare(actual, reference)
    for result in (wrong_sign, missing, surplus):
        assert not result.passed and result.row_error == math.inf and result.n_bad_rows == 1
        assert result.first_mismatch is not None
        assert result.first_mismatch.index == (0, 1, 0, 3)
        assert result.first_mismatch.reason == "infinity"


def test_an_infinity_does_not_hide_the_rest_of_its_row() -> None:
    actual, reference = plain()
    actual[0, 1, 0, 3] = reference[0, 1, 0, 3] = math.inf
    actual[0, 1, 0, 4] += 0.01
    assert compare(actual, reference).n_bad_rows == 1


def test_a_row_of_zeros_must_be_met_exactly() -> None:
    actual, reference = plain(0.0)
    assert compare(actual, reference).passed
    actual[1, 1, 1, 1] = 6e-8
    assert compare(actual, reference).row_error == math.inf


def test_the_bound_itself() -> None:
    """One part in 2^10 of a single-element row is wrong, half of that is rounding."""
    reference = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    for error, passes in ((2.0**-11, True), (1.24 * 2.0**-11, True), (1.26 * 2.0**-11, False)):
        assert compare(reference + error, reference, DType.FP16).passed is passes
        assert compare(reference + 8 * error, reference, DType.BF16).passed is passes


def test_what_cannot_be_compared_is_an_error() -> None:
    actual, reference = plain()
    with pytest.raises(ValueError, match=r"shape \(2, 3, 2, 8\), the reference \(3, 2, 8\)"):
        compare(actual, reference[0])
    with pytest.raises(ValueError, match="nothing was compared"):
        compare(actual[:0], reference[:0])
    with pytest.raises(ValueError, match="must be fp32 or fp64"):
        compare(actual, reference.half())


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_rule_of_flash_attention_2(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 256, 1, D, generator=generator).to(dtype) for _ in range(3))
    exact, naive = attention_reference(q, k, v)[0], attention_low_precision(q, k, v)
    assert fa2_rule(exact.to(dtype), exact, naive) == 0
    assert fa2_rule(naive, exact, naive) == 0.5
    assert fa2_rule(exact.flip(1).to(dtype), exact, naive) > 10
    assert fa2_rule(torch.full_like(naive, math.nan), exact, naive) == math.inf
    assert fa2_rule(naive, exact, exact.to(dtype)) == math.inf  # nothing is allowed


def test_bitwise_equality_looks_at_the_bits() -> None:
    nan = torch.full((4,), math.nan, dtype=torch.float16)
    zero = torch.zeros(4, dtype=torch.bfloat16)
    assert bitwise_equal(nan, nan.clone()) and bitwise_equal(zero, zero.clone())
    assert not bitwise_equal(zero, -zero)
    assert not bitwise_equal(zero, zero.half())
