"""LayerNorm and RMSNorm of long rows, forward, without a residual: each program has one part of its
rows, and keeps that of weight and bias in shared memory. While the parts of one row wait for each
other (rows/exchange.py), those of the next are summed up."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..rows.exchange import exchange_of
from ..rows.ring import each_sum, held, shape_of, started, wait_group

NUMBERS = ["rows", "columns", "x_row", "residual_row", "out_row", "parts"]


@gluon.jit
def placed(ring, vector):
    """The program's part of a weight or bias, in shared memory."""
    shape: gl.constexpr = shape_of(ring.BLOCK, ring.VECTOR, gl.num_warps())
    BYTES: gl.constexpr = ring.VECTOR * vector.dtype.element_ty.primitive_bitwidth // 8
    # A thread's 32 bytes are read in two halves: four threads the first, the next four the second,
    # so that eight threads' halves are in banks of their own.
    swizzle: gl.constexpr = [4, 4, 2] if BYTES == 32 else [1, 1, 1]
    layout: gl.constexpr = gl.SwizzledSharedLayout(swizzle[0], swizzle[1], swizzle[2], [2, 1, 0])
    place = gl.allocate_shared_memory(vector.dtype.element_ty, shape, layout)
    place.store(gl.load(vector + ring.column(), mask=ring.column() < ring.columns, other=0.0))
    return place


@gluon.jit
def of_part(ring, load, LAYER: gl.constexpr, LAG: gl.constexpr):
    """(the mean of a part, the sum of squares about it); RMSNorm's are about 0. Of the loads behind
    this one, those of LAG rows that are not written yet were not begun."""
    v = ring.arrived(load, ring.SLOTS - 1 - LAG).to(gl.float32)
    m = gl.to_tensor(0.0)
    away = v
    if LAYER:
        n = gl.minimum(ring.columns - ring.first, ring.BLOCK)
        m = gl.sum(each_sum(v), 0) / n.to(gl.float32)
        away = ring.again(load).to(gl.float32) - m
        if not ring.FULL:
            away = gl.where(ring.column() < ring.columns, away, 0.0)
    return m, gl.sum(each_sum(gl.fma(away, away, 0.0)), 0)


@gluon.jit
def of_row(ring, exchange, turn, first, second, LAYER: gl.constexpr):
    """(mean, sum of squares about it) of all parts, whose words were asked for; the squares about
    one mean by those about several, as Chan, Golub and LeVeque (1979) join them."""
    squares, means, _ = exchange.gathered(turn, first, second, False)
    m = gl.to_tensor(0.0)
    if LAYER:
        n = gl.minimum(ring.columns - exchange.each() * ring.BLOCK, ring.BLOCK)
        n = gl.maximum(n, 0).to(gl.float32)
        m = gl.sum(gl.fma(means, n, 0.0), 0) / ring.columns.to(gl.float32)
        away = means - m
        squares += gl.sum(gl.fma(gl.fma(away, away, 0.0), n, 0.0), 0)
    return m, squares


@gluon.jit
def normalised(
    ring, load, given, m, r, LAYER: gl.constexpr, WEIGHT: gl.constexpr, BIAS: gl.constexpr
):  # fmt: skip
    """Of weight and bias there is what is `given`."""
    weight, bias = given
    layout: gl.constexpr = held(ring.VECTOR, gl.num_warps())
    v = ring.again(load).to(gl.float32)
    y = (v - m) * r if LAYER else v * r
    if WEIGHT:
        y *= weight.load(layout).to(gl.float32)
    if BIAS:
        y += bias.load(layout).to(gl.float32)
    return y


@gluon.jit(do_not_specialize=NUMBERS)
def forward(
    x, residual, weight, bias, out, total, mean, rstd, words,
    rows, columns, x_row, residual_row, out_row, parts, eps,
    LAYER: gl.constexpr, RESIDUAL: gl.constexpr, WEIGHT: gl.constexpr, BIAS: gl.constexpr,
    STATISTICS: gl.constexpr, FULL: gl.constexpr, ALIGN: gl.constexpr, BLOCK: gl.constexpr,
    SLOTS: gl.constexpr, MOST: gl.constexpr, LAG: gl.constexpr,
):  # fmt: skip
    """As norms/kernels.py; `words`: of an Exchange. A row is written LAG turns after its parts were
    summed up."""
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    ring = started(x, rows, columns, x_row, parts, FULL, BLOCK, SLOTS)
    exchange = exchange_of(words, parts, MOST)
    turns = gl.cdiv(rows - ring.group, ring.groups)
    w, b = weight, bias
    if WEIGHT:
        w = placed(ring, weight)
    if BIAS:
        b = placed(ring, bias)
    for turn in range(turns + LAG):
        past = turn - LAG
        first, second = exchange.asked(gl.maximum(past, 0))
        if turn < turns:
            m, squares = of_part(ring, turn, LAYER, LAG)
            exchange.publish(turn, m, squares)
        if past >= 0:
            m, squares = of_row(ring, exchange, past, first, second, LAYER)
            r = gl.rsqrt(squares / columns.to(gl.float32) + eps)
            y = normalised(ring, past, (w, b), m, r, LAYER, WEIGHT, BIAS)
            ring.fill(past + SLOTS)
            ring.write(out, out_row, past, y)
            if STATISTICS:  # noqa: SIM102 (known when this is compiled)
                if exchange.part == 0:
                    if LAYER:
                        gl.store(mean + ring.row(past), m)
                    gl.store(rstd + ring.row(past), r)
    wait_group(0)  # loads of nothing, whose places leave() may use
    exchange.leave()
