"""LayerNorm and RMSNorm of long rows, forward, without a residual: each program has one part of a
row in shared memory, and reads it again once the parts have told each other their numbers
(rows/exchange.py)."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..rows.exchange import exchange_of
from ..rows.part import each_sum, part_of

NUMBERS = ["rows", "columns", "x_row", "residual_row", "out_row", "parts"]


@gluon.jit
def of_part(row, part, LAYER: gl.constexpr, OWN: gl.constexpr):
    """(the mean of a part, the sum of squares about it); RMSNorm's are about 0. Beyond the last
    column there are zeros."""
    m, squares = gl.to_tensor(0.0), row.of_threads(0.0)
    if LAYER:
        total = row.of_threads(0.0)
        for c in range(row.chunks(part)):
            total += each_sum(row.of(part, c, OWN).to(gl.float32))
        n = gl.minimum(row.columns - part * row.BLOCK, row.BLOCK)
        m = gl.sum(total, 0) / n.to(gl.float32)
    for c in range(row.chunks(part)):
        away = row.of(part, c, OWN).to(gl.float32)
        if LAYER:
            away = row.known(away - m, part, c, 0.0)
        squares += each_sum(away * away)
    return m, gl.sum(squares, 0)


@gluon.jit
def of_row(row, exchange, LAYER: gl.constexpr):
    """(mean, sum of squares about it) of all parts; the squares about one mean by those about
    several, as Chan, Golub and LeVeque (1979) join them."""
    means, squares, there = exchange.gathered()
    each = exchange.each()
    if there == 0:
        for part in range(exchange.parts):
            m, its = of_part(row, part, LAYER, False)
            means, squares = gl.where(each == part, m, means), gl.where(each == part, its, squares)
    total = gl.sum(squares, 0)
    m = gl.to_tensor(0.0)
    if LAYER:
        n = gl.maximum(gl.minimum(row.columns - each * row.BLOCK, row.BLOCK), 0).to(gl.float32)
        m = gl.sum(gl.fma(means, n, 0.0), 0) / row.columns.to(gl.float32)
        away = means - m
        total += gl.sum(gl.fma(gl.fma(away, away, 0.0), n, 0.0), 0)
    return m, total


@gluon.jit(do_not_specialize=NUMBERS)
def forward(
    x, residual, weight, bias, out, total, mean, rstd, words,
    rows, columns, x_row, residual_row, out_row, parts, eps,
    LAYER: gl.constexpr, RESIDUAL: gl.constexpr, WEIGHT: gl.constexpr, BIAS: gl.constexpr,
    STATISTICS: gl.constexpr, FULL: gl.constexpr, ALIGN: gl.constexpr, BLOCK: gl.constexpr,
    CHUNKS: gl.constexpr, MOST: gl.constexpr, PATIENCE: gl.constexpr,
):  # fmt: skip
    """As norms/kernels.py; `words`: of an Exchange."""
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    row, index = part_of(x, columns, x_row, parts, FULL, BLOCK, CHUNKS)
    exchange = exchange_of(words, rows, parts, MOST, PATIENCE)
    row.arrive()
    m, squares = of_part(row, row.part, LAYER, True)
    exchange.publish(m, squares)
    m, squares = of_row(row, exchange, LAYER)
    before = exchange.leave()
    r = gl.rsqrt(squares / columns.to(gl.float32) + eps)
    for c in range(row.chunks(row.part)):
        v = row.kept(c).to(gl.float32)
        y = (v - m) * r if LAYER else v * r
        if WEIGHT:
            y *= row.read(weight, row.part, c).to(gl.float32)
        if BIAS:
            y += row.read(bias, row.part, c).to(gl.float32)
        row.write(out + index * out_row, c, y)
    if STATISTICS:  # noqa: SIM102 (known when this is compiled)
        if row.part == 0:
            if LAYER:
                gl.store(mean + index, m)
            gl.store(rstd + index, r)
    exchange.leave_zeros(before)
