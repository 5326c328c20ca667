"""Softmax of rows and its logarithm, forward, with a row in the registers of a program: one
exponential a number, and one reduction over the program's threads."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..rows.alone import row_of
from ..rows.part import each_sum
from .parts import exp, finite, joined


@gluon.jit(do_not_specialize=["rows", "columns", "x_row", "out_row"])
def forward(
    x, out, rows, columns, x_row, out_row, LOG: gl.constexpr, ONLINE: gl.constexpr,
    FULL: gl.constexpr, ALIGN: gl.constexpr, BLOCK: gl.constexpr,
):  # fmt: skip
    """ONLINE is the other kernel's."""
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    row = row_of(x, columns, FULL, BLOCK)
    v = row.once(x, x_row, -float("inf")).to(gl.float32)
    top = gl.max(gl.max(v, 2), 0)  # a thread's own, without NaN, which the sum keeps
    e = exp(v - finite(top)[None, :, None])
    highest, total = gl.reduce((top, each_sum(e)), 0, joined)
    if LOG:
        y = v - highest - gl.log(total)
    else:
        y = e * (exp(top - highest) * (1.0 / total))[None, :, None]
    row.store(out, out_row, 0, y, "")
