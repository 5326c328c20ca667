"""LayerNorm and RMSNorm, forward, without a residual, a row a program: LayerNorm's in registers,
RMSNorm's read twice in small steps, which many threads take at a time."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..rows.alone import row_of, same
from ..rows.part import each_sum

NUMBERS = ["rows", "columns", "x_row", "residual_row", "out_row"]


@gluon.jit
def scaled(row, y, weight, bias, first, WEIGHT: gl.constexpr, BIAS: gl.constexpr):
    if WEIGHT:
        y *= row.shared(weight, first).to(gl.float32)
    if BIAS:
        y += row.shared(bias, first).to(gl.float32)
    return y


@gluon.jit(do_not_specialize=NUMBERS)
def forward(
    x, residual, weight, bias, out, total, mean, rstd,
    rows, columns, x_row, residual_row, out_row, eps,
    LAYER: gl.constexpr, RESIDUAL: gl.constexpr, WEIGHT: gl.constexpr, BIAS: gl.constexpr,
    STATISTICS: gl.constexpr, FULL: gl.constexpr, ALIGN: gl.constexpr, BLOCK: gl.constexpr,
):  # fmt: skip
    """As norms/kernels.py."""
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    length = columns.to(gl.float32)
    row = row_of(x, columns, FULL, BLOCK)
    if LAYER:
        raw = row.once(x, x_row, 0.0)
        m = gl.sum(each_sum(raw.to(gl.float32)), 0) / length
        away = row.known(same(raw).to(gl.float32) - m, 0.0)
        r = gl.rsqrt(gl.sum(each_sum(away * away), 0) / length + eps)
        y = (same(raw).to(gl.float32) - m) * r
        row.store(out, out_row, 0, scaled(row, y, weight, bias, 0, WEIGHT, BIAS), "")
    else:
        squares = row.of_threads(0.0)
        for first in range(0, columns, BLOCK):
            v = row.step(x, x_row, first, 0.0, True).to(gl.float32)
            squares += each_sum(v * v)
        r = gl.rsqrt(gl.sum(squares, 0) / length + eps)
        for first in range(0, columns, BLOCK):
            y = row.step(x, x_row, first, 0.0, False).to(gl.float32) * r
            y = scaled(row, y, weight, bias, first, WEIGHT, BIAS)
            row.store(out, out_row, first, y, ".cs")
    if STATISTICS:
        if LAYER:
            gl.store(mean + row.index, m)
        gl.store(rstd + row.index, r)
