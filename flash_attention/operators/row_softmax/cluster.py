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
    PARTS: gl.constexpr, FULL: gl.constexpr, ALIGN: gl.constexpr, ROWS: gl.constexpr,
    BLOCK: gl.constexpr, PIECES: gl.constexpr, TOGETHER: gl.constexpr,
):  # fmt: skip
    """ONLINE, PIECES and TOGETHER are other kernels'."""
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    share = share_of(x, rows, columns, PARTS, FULL, ROWS, BLOCK, 1, False)
    raw = share.once(x, x_row, -float("inf"), 0)
    share.begin()
    v = raw.to(gl.float32)
    top = gl.max(gl.max(v, 4), 1)  # a thread's own, without NaN, which the sum keeps
    e = exp(v - finite(top)[:, None, :, :, None])
    high = gl.max(top, 2)
    total = gl.sum(gl.fma(gl.sum(gl.sum(e, 4), 1), exp(top - finite(high)[:, :, None]), 0.0), 2)
    share.publish(among(top, high), among(top, total))
    tops, totals = share.gathered(LOWEST)
    highest = gl.max(tops, 1)
    total = gl.sum(gl.fma(totals, exp(tops - highest[:, None]), 0.0), 1)
    if LOG:
        y = v - share.in_threads(highest)[:, None, :, :, None]
        y -= share.in_threads(gl.log(total))[:, None, :, :, None]
    else:
        scale = exp(top - share.in_threads(highest)) * share.in_threads(1.0 / total)
        y = e * scale[:, None, :, :, None]
    share.store(out, out_row, y, 0)
