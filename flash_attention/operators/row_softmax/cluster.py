"""Softmax of long rows and its logarithm, forward: each program of a cluster has one part of a row
in registers, with one exponential a number (rows/cluster.py). Exponentials are powers of two of
fused products: as a maximum's product with log2(e) is rounded, every thread must round it so."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..rows.cluster import among, share_of
from .parts import finite

LOWEST = gl.constexpr("0fFF800000")  # -inf
LOG2_E = gl.constexpr(1.4426950408889634)
LN_2 = gl.constexpr(0.6931471805599453)


@gluon.jit
def exp2(x):
    """2**x; below the smallest normal number 0."""
    return gl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=gl.float32, is_pure=True,
        pack=1)  # fmt: skip


@gluon.jit
def binary(top):
    """A maximum in powers of two."""
    return gl.fma(top, LOG2_E, 0.0)


@gluon.jit
def greater(a, b):
    """Of pieces, without NaN, which the sum keeps; two numbers of 16 bits at a time."""
    if a.dtype == gl.float32:
        return gl.maximum(a, b)
    TEXT: gl.constexpr = "max.bf16x2" if a.dtype == gl.bfloat16 else "max.f16x2"
    return gl.inline_asm_elementwise(
        TEXT + " $0, $1, $2;", "=r,r,r", [a, b], dtype=a.dtype, is_pure=True, pack=2)  # fmt: skip


@gluon.jit(do_not_specialize=["rows", "columns", "x_row", "out_row"])
def forward(
    x, out, rows, columns, x_row, out_row, LOG: gl.constexpr, ONLINE: gl.constexpr,
    PARTS: gl.constexpr, FULL: gl.constexpr, ALIGN: gl.constexpr, ROWS: gl.constexpr,
    BLOCK: gl.constexpr, PIECES: gl.constexpr, TOGETHER: gl.constexpr, AHEAD: gl.constexpr,
    SHARED: gl.constexpr,
):  # fmt: skip
    """ONLINE, AHEAD and SHARED are other kernels'."""
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    share = share_of(x, rows, columns, PARTS, FULL, ROWS, BLOCK, PIECES, TOGETHER)
    raws, es = (), ()
    for piece in gl.static_range(PIECES):
        raws += (share.once(x, x_row, -float("inf"), piece),)
    share.begin()
    most = raws[0]
    for piece in gl.static_range(1, PIECES):
        most = greater(most, raws[piece])
    top = gl.max(gl.max(most.to(gl.float32), 4), 1)  # a thread's own
    total = gl.zeros_like(top)
    for piece in gl.static_range(PIECES):
        less = binary(finite(top))[:, None, :, :, None]
        e = exp2(gl.fma(raws[piece].to(gl.float32), LOG2_E, -less))
        total += gl.sum(gl.sum(e, 4), 1)
        es += (e,)
    high = gl.max(top, 2)
    its = gl.sum(gl.fma(total, exp2(binary(top) - binary(finite(high))[:, :, None]), 0.0), 2)
    high, its = among(top, high), among(top, its)
    if TOGETHER:
        highs, all_its = share.of_warps(high, its)
        high = gl.max(highs, 1)
        its = exp2(binary(highs) - binary(finite(high))[:, None])
        its = gl.sum(gl.fma(all_its, its, 0.0), 1)
        high, its = share.in_all(high, top), share.in_all(its, top)
    share.publish(high, its)
    tops, totals = share.gathered(LOWEST)
    highest = binary(gl.max(tops, 1))
    all_of = gl.sum(gl.fma(totals, exp2(binary(tops) - highest[:, None]), 0.0), 1)
    less, log = share.in_threads(highest), share.in_threads(gl.log(all_of))
    scale = exp2(binary(top) - less) * share.in_threads(1.0 / all_of)
    for piece in gl.static_range(PIECES):
        if LOG:
            y = gl.fma(raws[piece].to(gl.float32), LOG2_E, -less[:, None, :, :, None])
            y = gl.fma(y, LN_2, -log[:, None, :, :, None])
        else:
            y = es[piece] * scale[:, None, :, :, None]
        share.store(out, out_row, y, piece)
