"""Mean and variance of rows, computed in fp32. Columns and strides come in units of ALIGN."""

# The functions below are Triton, not Python: the compiler reads their text.
# mypy: ignore-errors

import triton
import triton.language as tl

from ..rows.blocks import block_of, product


@triton.jit
def merge(mean_a, squares_a, n_a, mean_b, squares_b, n_b):
    """Two parts of a row as one: means, sums of squared distances from them, numbers (Chan). With a
    and b exchanged it gives the same bits, since two lanes that merge each other's parts must."""
    n = n_a + n_b
    whole = tl.where(n > 0.0, n, 1.0)
    distance = mean_b - mean_a
    middle = 0.5 * mean_a + 0.5 * mean_b
    return (
        middle + 0.5 * distance * ((n_b - n_a) / whole),
        (squares_a + squares_b) + distance * distance * (n_a * n_b / whole),
        n,
    )


@triton.jit(do_not_specialize=["rows", "columns", "x_row"])
def mean_var(
    x, mean, var, rows, columns, x_row, divisor,
    WELFORD: tl.constexpr, ALIGN: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """`divisor`: of the sum of squares. Two passes: the mean first, then the distances from it.
    WELFORD: one pass, in which every column of the block keeps a mean of its own."""
    columns, x_row = columns * ALIGN, x_row * ALIGN
    part = tl.program_id(0)
    length = columns.to(tl.float32)
    if WHOLE:
        row, column, inside = block_of(part, rows, columns, 0, ROWS, BLOCK)
        v = tl.load(x + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
        m = tl.sum(v, 1) / length
        away = tl.where(inside, v - m[:, None], 0.0)
        squares = tl.sum(product(away, away), 1)
    elif WELFORD:
        means = tl.zeros([ROWS, BLOCK], tl.float32)
        sums = tl.zeros([ROWS, BLOCK], tl.float32)
        counts = tl.zeros([ROWS, BLOCK], tl.float32)
        for first in range(0, columns, BLOCK):
            row, column, inside = block_of(part, rows, columns, first, ROWS, BLOCK)
            v = tl.load(x + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
            counts += tl.where(inside, 1.0, 0.0)
            away = tl.where(inside, v - means, 0.0)
            means += tl.where(inside, away / counts, 0.0)
            sums += tl.where(inside, away * (v - means), 0.0)
        m, squares, _ = tl.reduce((means, sums, counts), 1, merge)
    else:
        total = tl.zeros([ROWS, BLOCK], tl.float32)
        for first in range(0, columns, BLOCK):
            row, column, inside = block_of(part, rows, columns, first, ROWS, BLOCK)
            total += tl.load(x + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
        m = tl.sum(total, 1) / length
        total = tl.zeros([ROWS, BLOCK], tl.float32)
        for first in range(0, columns, BLOCK):
            row, column, inside = block_of(part, rows, columns, first, ROWS, BLOCK)
            v = tl.load(x + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
            away = tl.where(inside, v - m[:, None], 0.0)
            total += away * away
        squares = tl.sum(total, 1)
    place = part * ROWS + tl.arange(0, ROWS)
    tl.store(mean + place, m, mask=place < rows)
    tl.store(var + place, squares / divisor, mask=place < rows)
