"""LayerNorm and RMSNorm of long rows, forward and backward: the ring of rows/ring.py keeps loads
under way all the time."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..rows.ring import ring_of, started, vectors, wait_group


@gluon.jit
def added(ring, load, block, means, squares, LAYER: gl.constexpr):
    """With one more block: each lane's mean and squares about it, by Welford's method, or, if not
    LAYER, its squares."""
    v, inside = ring.read(load, block)
    if LAYER:
        away = gl.where(inside, v - means, 0.0)
        means += away * (1.0 / (block + 1).to(gl.float32))
        squares += away * gl.where(inside, v - means, 0.0)
    else:
        squares += gl.where(inside, v * v, 0.0)
    return means, squares


@gluon.jit
def whole(t):
    """The sum of all elements."""
    return gl.sum(gl.sum(t, 1), 0)


@gluon.jit
def written(
    ring, load, block, weight, bias, out_at, m, r, WEIGHT: gl.constexpr, BIAS: gl.constexpr
):
    column = ring.column(block)
    known = column < ring.columns
    if WEIGHT:
        w = gl.load(weight + column, mask=known, other=0.0).to(gl.float32)
    if BIAS:
        b = gl.load(bias + column, mask=known, other=0.0).to(gl.float32)
    v, _ = ring.read(load, block)
    y = (v - m) * r
    if WEIGHT:
        y *= w
    if BIAS:
        y += b
    gl.store(out_at + column, y.to(out_at.dtype.element_ty), mask=known)


@gluon.jit(do_not_specialize=["rows", "columns", "x_row", "residual_row", "out_row"])
def forward(
    x, residual, weight, bias, out, total, mean, rstd,
    rows, columns, x_row, residual_row, out_row, eps,
    LAYER: gl.constexpr, RESIDUAL: gl.constexpr, WEIGHT: gl.constexpr, BIAS: gl.constexpr,
    STATISTICS: gl.constexpr,
    ALIGN: gl.constexpr, BLOCK: gl.constexpr, SLOTS: gl.constexpr, HELD: gl.constexpr,
    STREAM: gl.constexpr,
):  # fmt: skip
    """STREAM: rows have more than HELD blocks. There is no residual."""
    gl.static_assert(not RESIDUAL, "a residual goes by the plain kernel")
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    ring = started(x, rows, columns, x_row, BLOCK, SLOTS, HELD)
    layout: gl.constexpr = vectors(ring.VECTOR, gl.num_warps())
    length = columns.to(gl.float32)
    again = ring.again
    load = 0
    for row in range(gl.program_id(0), rows, gl.num_programs(0)):
        out_at = out + row.to(gl.int64) * out_row
        means = gl.zeros([BLOCK // ring.VECTOR, ring.VECTOR], gl.float32, layout)
        squares = gl.zeros([BLOCK // ring.VECTOR, ring.VECTOR], gl.float32, layout)
        if STREAM:
            for block in range(again):
                wait_group(SLOTS - 1)
                means, squares = added(ring, load, block, means, squares, LAYER)
                ring.fill(load + SLOTS)
                load += 1
        wait_group(SLOTS - HELD)
        for i in range(HELD):
            means, squares = added(ring, load + i, again + i, means, squares, LAYER)
        m = 0.0
        if LAYER:
            n = ((columns - ring.column(0) + BLOCK - 1) // BLOCK).to(gl.float32)
            m = whole(gl.fma(means, n, 0.0)) / length
            away = gl.where(n > 0.0, means - m, 0.0)
            squares += away * away * n
        r = gl.rsqrt(whole(squares) / length + eps)
        for i in range(HELD):
            written(ring, load, again + i, weight, bias, out_at, m, r, WEIGHT, BIAS)
            ring.fill(load + SLOTS)
            load += 1
        if STREAM:
            for block in range(again):
                wait_group(SLOTS - 1)
                written(ring, load, block, weight, bias, out_at, m, r, WEIGHT, BIAS)
                ring.fill(load + SLOTS)
                load += 1
        if STATISTICS:
            gl.store(mean + row, m)
            gl.store(rstd + row, r)
    wait_group(0)


@gluon.jit
def slopes(grads, ring, load, block, weight, m, r, WEIGHT: gl.constexpr):
    """(the gradient of the normalised rows, these rows, the columns, which of them there are)."""
    column = ring.column(block)
    known = column < ring.columns
    if WEIGHT:
        w = gl.load(weight + column, mask=known, other=0.0).to(gl.float32)
    g, _ = grads.read(load, block)
    v, _ = ring.read(load, block)
    if WEIGHT:
        g *= w
    return gl.where(known, g, 0.0), (v - m) * r, column, known


@gluon.jit
def sums(grads, ring, load, block, weight, m, r, sum_g, sum_gh, WEIGHT: gl.constexpr):
    """With one more block, of each lane."""
    g, hat, _, _ = slopes(grads, ring, load, block, weight, m, r, WEIGHT)
    return sum_g + g, sum_gh + g * hat


@gluon.jit
def gradient(
    grads, ring, load, block, weight, m, r, mean_g, mean_gh, added_at, dx_at,
    LAYER: gl.constexpr, ADDED: gl.constexpr, WEIGHT: gl.constexpr,
):  # fmt: skip
    g, hat, column, known = slopes(grads, ring, load, block, weight, m, r, WEIGHT)
    dx = g - hat * mean_gh
    if LAYER:
        dx -= mean_g
    dx *= r
    if ADDED:
        dx += gl.load(added_at + column, mask=known, other=0.0).to(gl.float32)
    gl.store(dx_at + column, dx.to(dx_at.dtype.element_ty), mask=known)


@gluon.jit(do_not_specialize=["rows", "columns", "grad_row", "x_row", "added_row", "dx_row"])
def rows_looped(
    grad, x, added, weight, mean, rstd, dx, dw, db,
    rows, columns, grad_row, x_row, added_row, dx_row,
    LAYER: gl.constexpr, ADDED: gl.constexpr, WEIGHT: gl.constexpr, BIAS: gl.constexpr,
    ALIGN: gl.constexpr, BLOCK: gl.constexpr, SLOTS: gl.constexpr, HELD: gl.constexpr,
    STREAM: gl.constexpr,
):  # fmt: skip
    """The gradient of the rows; gradients.columns_of has the weight's and the bias's."""
    columns, grad_row, x_row = columns * ALIGN, grad_row * ALIGN, x_row * ALIGN
    dx_row, added_row = dx_row * ALIGN, added_row * ALIGN
    grads = ring_of(grad, rows, columns, grad_row, BLOCK, SLOTS, HELD)
    ring = ring_of(x, rows, columns, x_row, BLOCK, SLOTS, HELD)
    for load in gl.static_range(SLOTS):
        grads.fill(load)
        ring.fill(load)
    layout: gl.constexpr = vectors(ring.VECTOR, gl.num_warps())
    length = columns.to(gl.float32)
    again = ring.again
    load = 0
    for row in range(gl.program_id(0), rows, gl.num_programs(0)):
        added_at = added + row.to(gl.int64) * added_row
        dx_at = dx + row.to(gl.int64) * dx_row
        m = 0.0
        if LAYER:
            m = gl.load(mean + row)
        r = gl.load(rstd + row)
        sum_g = gl.zeros([BLOCK // ring.VECTOR, ring.VECTOR], gl.float32, layout)
        sum_gh = gl.zeros([BLOCK // ring.VECTOR, ring.VECTOR], gl.float32, layout)
        if STREAM:
            for block in range(again):
                wait_group(2 * SLOTS - 2)
                sum_g, sum_gh = sums(
                    grads, ring, load, block, weight, m, r, sum_g, sum_gh, WEIGHT)  # fmt: skip
                grads.fill(load + SLOTS)
                ring.fill(load + SLOTS)
                load += 1
        wait_group(2 * SLOTS - 2 * HELD)
        for i in range(HELD):
            sum_g, sum_gh = sums(
                grads, ring, load + i, again + i, weight, m, r, sum_g, sum_gh, WEIGHT)  # fmt: skip
        mean_g = 0.0
        if LAYER:
            mean_g = whole(sum_g) / length
        mean_gh = whole(sum_gh) / length
        for i in range(HELD):
            gradient(
                grads, ring, load, again + i, weight, m, r, mean_g, mean_gh, added_at, dx_at,
                LAYER, ADDED, WEIGHT)  # fmt: skip
            grads.fill(load + SLOTS)
            ring.fill(load + SLOTS)
            load += 1
        if STREAM:
            for block in range(again):
                wait_group(2 * SLOTS - 2)
                gradient(
                    grads, ring, load, block, weight, m, r, mean_g, mean_gh, added_at, dx_at,
                    LAYER, ADDED, WEIGHT)  # fmt: skip
                grads.fill(load + SLOTS)
                ring.fill(load + SLOTS)
                load += 1
    wait_group(0)
