"""Softmax of long rows and its logarithm, forward: each program of a cluster has one part of a row
in registers, with one exponential a number (rows/cluster.py)."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..rows.cluster import among, share_of
from .parts import exp, finite

LOWEST = gl.constexpr("0fFF800000")  # -inf


@gluon.jit(do_not_specialize=["rows", "columns", "x_row", "out_row"])
def forward(
    x, out, rows, columns, x_row, out_row, LOG: gl.constexpr, ONLINE: gl.constexpr,
    PARTS: gl.constexpr, FULL: gl.constexpr, ALIGN: gl.constexpr, BLOCK: gl.constexpr,
):  # fmt: skip
    """ONLINE is the other kernel's."""
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    share = share_of(x, columns, PARTS, FULL, BLOCK)
    raw = share.once(x, x_row, -float("inf"))
    share.begin()
    v = raw.to(gl.float32)
    top = gl.max(gl.max(v, 3), 0)  # a thread's own, without NaN, which the sum keeps
    e = exp(v - finite(top)[None, :, :, None])
    high = gl.max(top, 1)
    total = gl.sum(gl.fma(gl.sum(gl.sum(e, 3), 0), exp(top - finite(high)[:, None]), 0.0), 1)
    share.publish(among(top, high), among(top, total))
    tops, totals = share.gathered(LOWEST)
    highest = gl.max(tops, 0)
    total = gl.sum(gl.fma(totals, exp(tops - highest), 0.0), 0)
    if LOG:
        y = v - highest - gl.log(total)
    else:
        y = e * (exp(top - highest) * (1.0 / total))[None, :, :, None]
    share.store(out, out_row, y)
