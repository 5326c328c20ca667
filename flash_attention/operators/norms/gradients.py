"""LayerNorm and RMSNorm backward, in fp32 and always in the same order: no atomics. Columns and
strides come in units of ALIGN."""

# The functions below are Triton, not Python: the compiler reads their text.
# mypy: ignore-errors

import triton
import triton.language as tl

from ..rows.blocks import block_of, product


@triton.jit
def fetched(grad_at, x_at, mean_at, rstd_at, known, inside, LAYER: tl.constexpr):
    """(the gradient of the output, x, its rows' mean and 1 / their deviation), as they are stored;
    `known`: rows that exist."""
    r = tl.load(rstd_at, mask=known, other=0.0)
    m = tl.load(mean_at, mask=known, other=0.0) if LAYER else r
    return tl.load(grad_at, mask=inside, other=0.0), tl.load(x_at, mask=inside, other=0.0), m, r


@triton.jit
def normalised(v, m, r, LAYER: tl.constexpr):
    v = v.to(tl.float32)
    if LAYER:
        v -= m
    return v * r


@triton.jit
def loaded(grad_at, x_at, mean_at, rstd_at, known, inside, LAYER: tl.constexpr):
    """(the gradient of the output, the normalised rows, 1 / their deviation)."""
    dy, v, m, r = fetched(grad_at, x_at, mean_at, rstd_at, known, inside, LAYER)
    return dy.to(tl.float32), normalised(v, m, r, LAYER), r


@triton.jit
def group_of(
    grad, x, mean, rstd, part, sizes, LAYER: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """`fetched` of the `part`-th ROWS rows; beyond the last one of nothing. `sizes`: rows, columns,
    and from row to row of the gradient and of x."""
    rows, columns, grad_row, x_row = sizes
    row, column, inside = block_of(part, rows, columns, 0, ROWS, BLOCK)
    return fetched(
        grad + row * grad_row + column, x + row * x_row + column, mean + row, rstd + row,
        row < rows, inside, LAYER)  # fmt: skip


@triton.jit
def weighted(dy, weight, column, columns, WEIGHT: tl.constexpr, SUMMED: tl.constexpr):
    """The gradient of the normalised rows. SUMMED: next, over lanes."""
    if WEIGHT:
        w = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
        dy = product(dy, w) if SUMMED else dy * w
    return dy


@triton.jit
def slope(g, hat, r, mean_g, mean_gh, added_at, inside, LAYER: tl.constexpr, ADDED: tl.constexpr):
    """The gradient of the rows; ADDED: with what flows past the norm, along the residual."""
    dx = g - hat * mean_gh
    if LAYER:
        dx -= mean_g
    dx *= r
    if ADDED:
        dx += tl.load(added_at, mask=inside, other=0.0).to(tl.float32)
    return dx


@triton.jit(do_not_specialize=["rows", "columns", "grad_row", "x_row", "added_row", "dx_row"])
def rows_whole(
    grad, x, added, weight, mean, rstd, dx, dw, db,
    rows, columns, grad_row, x_row, added_row, dx_row,
    LAYER: tl.constexpr, ADDED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    ALIGN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Every program takes its share of the rows, keeps their part of the weight's and the bias's
    gradients in registers, and writes it as a row of `dw` and `db`. Where there are registers for
    it, the next row is loaded while one is computed."""
    AHEAD: tl.constexpr = BLOCK * x.dtype.element_ty.primitive_bitwidth <= 8192 * 16
    columns, grad_row = columns * ALIGN, grad_row * ALIGN
    x_row, dx_row = x_row * ALIGN, dx_row * ALIGN
    added_row = added_row * ALIGN
    length = columns.to(tl.float32)
    part_w = tl.zeros([BLOCK], tl.float32)
    part_b = tl.zeros([BLOCK], tl.float32)
    sizes = rows, columns, grad_row, x_row
    if AHEAD:
        next_dy, next_v, next_m, next_r = group_of(
            grad, x, mean, rstd, tl.program_id(0), sizes, LAYER, ROWS, BLOCK
        )
    for part in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row, column, inside = block_of(part, rows, columns, 0, ROWS, BLOCK)
        if AHEAD:
            dy, v, m, r = next_dy, next_v, next_m, next_r
            next_dy, next_v, next_m, next_r = group_of(
                grad, x, mean, rstd, part + tl.num_programs(0), sizes, LAYER, ROWS, BLOCK
            )
        else:
            dy, v, m, r = group_of(grad, x, mean, rstd, part, sizes, LAYER, ROWS, BLOCK)
        dy, hat = dy.to(tl.float32), normalised(v, m, r, LAYER)
        if WEIGHT and not BIAS:  # sooner, since then `dy` needs no registers any more
            part_w += tl.sum(product(dy, hat), 0)
        g = weighted(dy, weight, column, columns, WEIGHT, True)
        mean_g = tl.sum(g, 1, keep_dims=True) / length
        mean_gh = tl.sum(product(g, hat), 1, keep_dims=True) / length
        y = slope(
            g, hat, r, mean_g, mean_gh, added + row * added_row + column, inside, LAYER, ADDED
        )
        tl.store(dx + row * dx_row + column, y, mask=inside)
        if WEIGHT and BIAS:
            part_w += tl.sum(product(dy, hat), 0)
        if BIAS:
            part_b += tl.sum(dy, 0)
    at = tl.arange(0, BLOCK)
    place = tl.program_id(0).to(tl.int64) * columns + at
    if WEIGHT:
        tl.store(dw + place, part_w, mask=at < columns)
    if BIAS:
        tl.store(db + place, part_b, mask=at < columns)


@triton.jit(do_not_specialize=["rows", "columns", "grad_row", "x_row", "added_row", "dx_row"])
def rows_looped(
    grad, x, added, weight, mean, rstd, dx, dw, db,
    rows, columns, grad_row, x_row, added_row, dx_row,
    LAYER: tl.constexpr, ADDED: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    ALIGN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """The gradient of rows that do not fit into registers; `columns_of` has the weight's."""
    columns, grad_row = columns * ALIGN, grad_row * ALIGN
    x_row, dx_row = x_row * ALIGN, dx_row * ALIGN
    added_row = added_row * ALIGN
    length = columns.to(tl.float32)
    part = tl.program_id(0)
    sum_g = tl.zeros([ROWS, BLOCK], tl.float32)
    sum_gh = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in range(0, columns, BLOCK):
        row, column, inside = block_of(part, rows, columns, first, ROWS, BLOCK)
        dy, hat, r = loaded(
            grad + row * grad_row + column, x + row * x_row + column, mean + row, rstd + row,
            row < rows, inside, LAYER)  # fmt: skip
        g = weighted(dy, weight, column, columns, WEIGHT, False)
        sum_g += g
        sum_gh += g * hat
    mean_g = tl.sum(sum_g, 1, keep_dims=True) / length
    mean_gh = tl.sum(sum_gh, 1, keep_dims=True) / length
    for first in range(0, columns, BLOCK):
        row, column, inside = block_of(part, rows, columns, first, ROWS, BLOCK)
        dy, hat, r = loaded(
            grad + row * grad_row + column, x + row * x_row + column, mean + row, rstd + row,
            row < rows, inside, LAYER)  # fmt: skip
        g = weighted(dy, weight, column, columns, WEIGHT, False)
        y = slope(
            g, hat, r, mean_g, mean_gh, added + row * added_row + column, inside, LAYER, ADDED
        )
        tl.store(dx + row * dx_row + column, y, mask=inside)


@triton.jit(do_not_specialize=["rows", "columns", "grad_row", "x_row", "share"])
def columns_of(
    grad, x, mean, rstd, dw, db, rows, columns, grad_row, x_row, share,
    LAYER: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr,
    ALIGN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """BLOCK columns of the weight's and the bias's gradients, of `share` rows, which is a multiple
    of ROWS: a row of `dw` and `db` for each share."""
    columns, grad_row = columns * ALIGN, grad_row * ALIGN
    x_row = x_row * ALIGN
    blocks = tl.cdiv(columns, BLOCK)
    first, part = tl.program_id(0) % blocks * BLOCK, tl.program_id(0) // blocks
    sum_w = tl.zeros([ROWS, BLOCK], tl.float32)
    sum_b = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(part * share, tl.minimum(rows, (part + 1) * share), ROWS):
        row, column, inside = block_of(start // ROWS, rows, columns, first, ROWS, BLOCK)
        if WEIGHT:
            dy, hat, _ = loaded(
                grad + row * grad_row + column, x + row * x_row + column, mean + row, rstd + row,
                row < rows, inside, LAYER)  # fmt: skip
            sum_w += dy * hat
        else:
            dy = tl.load(grad + row * grad_row + column, mask=inside, other=0.0).to(tl.float32)
        sum_b += dy
    column = first + tl.arange(0, BLOCK)
    place = part.to(tl.int64) * columns + column
    if WEIGHT:
        tl.store(dw + place, tl.sum(sum_w, 0), mask=column < columns)
    if BIAS:
        tl.store(db + place, tl.sum(sum_b, 0), mask=column < columns)
