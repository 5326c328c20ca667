"""LayerNorm and RMSNorm of rows, forward, computed in fp32.

A residual is added first, and the sum is written too: it is what the next layer's residual is.
LAYER: the mean is subtracted. WHOLE: a row stays in registers; else it is read twice, and meant to
stay in the cache in between. Columns and strides come in units of ALIGN.
"""

# The functions below are Triton, not Python: the compiler reads their text.
# mypy: ignore-errors

import triton
import triton.language as tl

from ..rows.blocks import block_of, product


@triton.jit
def normalised(
    v, mean, rstd, weight, bias, column, columns, WEIGHT: tl.constexpr, BIAS: tl.constexpr
):
    """The row less its mean over its deviation, times the weight, plus the bias."""
    y = (v - mean) * rstd
    if WEIGHT:
        y *= tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    if BIAS:
        y += tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)
    return y


@triton.jit
def summed(x_at, residual_at, sum_at, inside, RESIDUAL: tl.constexpr, AGAIN: tl.constexpr):
    """The row that is normalised, as it is written: rounded to the element type. AGAIN: it will be
    read again."""
    if RESIDUAL or not AGAIN:
        v = tl.load(x_at, mask=inside, other=0.0)
    else:
        v = tl.load(x_at, mask=inside, other=0.0, eviction_policy="evict_last")
    if RESIDUAL:
        v = v.to(tl.float32) + tl.load(residual_at, mask=inside, other=0.0).to(tl.float32)
        v = v.to(sum_at.dtype.element_ty)
        tl.store(sum_at, v, mask=inside)
    return v.to(tl.float32)


@triton.jit(do_not_specialize=["rows", "columns", "x_row", "residual_row", "out_row"])
def forward(
    x, residual, weight, bias, out, total, mean, rstd,
    rows, columns, x_row, residual_row, out_row, eps,
    LAYER: tl.constexpr, RESIDUAL: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    STATISTICS: tl.constexpr,
    ALIGN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """`total`, the sum with the residual, lies as `out` does; without a residual it is x. Mean and
    1 / deviation are written where a gradient will need them (STATISTICS)."""
    columns, x_row = columns * ALIGN, x_row * ALIGN
    residual_row = residual_row * ALIGN
    out_row = out_row * ALIGN
    part = tl.program_id(0)
    length = columns.to(tl.float32)
    place = part * ROWS + tl.arange(0, ROWS)
    m = tl.zeros([ROWS], tl.float32)
    if WHOLE:
        row, column, inside = block_of(part, rows, columns, 0, ROWS, BLOCK)
        v = summed(
            x + row * x_row + column, residual + row * residual_row + column,
            total + row * out_row + column, inside, RESIDUAL, False)  # fmt: skip
        if LAYER:
            m = tl.sum(v, 1) / length
        away = tl.where(inside, v - m[:, None], 0.0)
        r = tl.rsqrt(tl.sum(product(away, away), 1) / length + eps)
        y = normalised(v, m[:, None], r[:, None], weight, bias, column, columns, WEIGHT, BIAS)
        tl.store(out + row * out_row + column, y, mask=inside)
    else:
        row_sum = tl.zeros([ROWS, BLOCK], tl.float32)
        means = tl.zeros([ROWS, BLOCK], tl.float32)
        for first in range(0, columns, BLOCK):
            row, column, inside = block_of(part, rows, columns, first, ROWS, BLOCK)
            v = summed(
                x + row * x_row + column, residual + row * residual_row + column,
                total + row * out_row + column, inside, RESIDUAL, True)  # fmt: skip
            if LAYER:  # each lane's mean and squares about it, by Welford's method
                away = tl.where(inside, v - means, 0.0)
                means += away * (1.0 / (first // BLOCK + 1).to(tl.float32))
                row_sum += away * tl.where(inside, v - means, 0.0)
            else:
                row_sum += v * v
        again, again_row = (total, out_row) if RESIDUAL else (x, x_row)
        if LAYER:
            n = ((columns - tl.arange(0, BLOCK) + BLOCK - 1) // BLOCK)[None, :].to(tl.float32)
            m = tl.sum(product(means, n), 1) / length
            away = tl.where(n > 0.0, means - m[:, None], 0.0)
            row_sum += away * away * n
        r = tl.rsqrt(tl.sum(row_sum, 1) / length + eps)
        for first in range(0, columns, BLOCK):
            row, column, inside = block_of(part, rows, columns, first, ROWS, BLOCK)
            v = tl.load(
                again + row * again_row + column, mask=inside, other=0.0,
                eviction_policy="evict_first").to(tl.float32)  # fmt: skip
            y = normalised(v, m[:, None], r[:, None], weight, bias, column, columns, WEIGHT, BIAS)
            tl.store(out + row * out_row + column, y, mask=inside)
    if STATISTICS:
        tl.store(mean + place, m, mask=place < rows)
        tl.store(rstd + place, r, mask=place < rows)
