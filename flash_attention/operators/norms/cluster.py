"""RMSNorm of long rows, forward, without a residual: each program of a cluster has one part of a
row in registers, and of the weight (rows/cluster.py)."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..rows.alone import same
from ..rows.cluster import among, share_of

NUMBERS = ["rows", "columns", "x_row", "residual_row", "out_row"]


@gluon.jit(do_not_specialize=NUMBERS)
def forward(
    x, residual, weight, bias, out, total, mean, rstd,
    rows, columns, x_row, residual_row, out_row, eps,
    LAYER: gl.constexpr, RESIDUAL: gl.constexpr, WEIGHT: gl.constexpr, BIAS: gl.constexpr,
    STATISTICS: gl.constexpr, PARTS: gl.constexpr, FULL: gl.constexpr, ALIGN: gl.constexpr,
    BLOCK: gl.constexpr,
):  # fmt: skip
    """As norms/kernels.py, of which it has RMSNorm: LAYER and BIAS are others'."""
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    share = share_of(x, columns, PARTS, FULL, BLOCK)
    raw = share.once(x, x_row, 0.0)
    if WEIGHT:  # now, as it would be waited for later
        w = share.shared(weight)
    share.begin()
    v = raw.to(gl.float32)
    squares = gl.sum(gl.sum(v * v, 3), 0)
    of_warp = among(squares, gl.sum(squares, 1))
    share.publish(of_warp, of_warp)
    all_squares, _ = share.gathered("0f00000000")
    r = gl.rsqrt(gl.sum(all_squares, 0) / columns.to(gl.float32) + eps)
    y = same(raw).to(gl.float32) * r
    if WEIGHT:
        y *= same(w).to(gl.float32)
    share.store(out, out_row, y)
    if STATISTICS:  # noqa: SIM102 (known when this is compiled)
        if share.part == 0:
            gl.store(rstd + share.index, r)
