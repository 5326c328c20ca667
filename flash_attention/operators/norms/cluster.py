"""LayerNorm and RMSNorm of long rows, forward, without a residual: each program of a cluster has
one part of some rows in registers, and of weight and bias, which serve all of these rows
(rows/cluster.py)."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..rows.alone import same
from ..rows.cluster import among, share_of

NUMBERS = ["rows", "columns", "x_row", "residual_row", "out_row"]


@gluon.jit
def each_sum(v):
    """Of what each thread has of each row."""
    return gl.sum(gl.sum(v, 4), 1)


@gluon.jit
def joined(means, squares, n, length):
    """(the mean of all, the sum of squares about it) from means of n numbers and the squares about
    them, as Chan, Golub and LeVeque (1979) join them. Rounded products, as they go over lanes."""
    m = gl.sum(gl.fma(means, n, 0.0), 1) / length.to(gl.float32)
    away = means - m[:, None]
    return m, gl.sum(squares + gl.fma(gl.fma(away, away, 0.0), n, 0.0), 1)


@gluon.jit
def publish_squares(share, raws):
    """The sums of squares."""
    v = raws[0].to(gl.float32)
    squares = each_sum(v * v)
    for piece in gl.static_range(1, share.PIECES):
        v = raws[piece].to(gl.float32)
        squares += each_sum(v * v)
    told = among(squares, gl.sum(squares, 2))
    if share.TOGETHER:
        told, _ = share.of_warps(told, told)
        told = share.in_threads(gl.sum(told, 1)) + 0.0 * squares
    share.publish(told, told)


@gluon.jit
def publish_means(share, raws):
    """Means, and the sums of squares about them."""
    total = each_sum(raws[0].to(gl.float32))
    for piece in gl.static_range(1, share.PIECES):
        total += each_sum(raws[piece].to(gl.float32))
    warp = gl.arange(0, gl.num_warps(), gl.SliceLayout(0, gl.SliceLayout(2, total.type.layout)))
    m = gl.sum(total, 2) / gl.maximum(share.of_warp(share.part, warp), 1.0)[None, :]
    squares = gl.zeros_like(total)
    for piece in gl.static_range(share.PIECES):
        away = same(raws[piece]).to(gl.float32) - m[:, :, None][:, None, :, :, None]
        away = share.known(away, 0.0, piece)
        squares += each_sum(away * away)
    means, squares = among(total, m), among(total, gl.sum(squares, 2))
    if share.TOGETHER:
        means, squares = share.of_warps(means, squares)
        warp = gl.arange(0, gl.num_warps(), gl.SliceLayout(0, means.type.layout))
        n = share.of_warp(share.part, warp)[None, :]
        m, squares = joined(means, squares, n, share.columns)
        means, squares = share.in_threads(m) + 0.0 * total, share.in_threads(squares) + 0.0 * total
    share.publish(means, squares)


@gluon.jit(do_not_specialize=NUMBERS)
def forward(
    x, residual, weight, bias, out, total, mean, rstd,
    rows, columns, x_row, residual_row, out_row, eps,
    LAYER: gl.constexpr, RESIDUAL: gl.constexpr, WEIGHT: gl.constexpr, BIAS: gl.constexpr,
    STATISTICS: gl.constexpr, PARTS: gl.constexpr, FULL: gl.constexpr, ALIGN: gl.constexpr,
    ROWS: gl.constexpr, BLOCK: gl.constexpr, PIECES: gl.constexpr, TOGETHER: gl.constexpr,
):  # fmt: skip
    """As norms/kernels.py. Weight and bias are under way before anything is waited for; of pieces,
    which leave no registers for that, before the other programs' numbers are."""
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    share = share_of(x, rows, columns, PARTS, FULL, ROWS, BLOCK, PIECES, TOGETHER)
    raws, ws, bs = (), (), ()
    for piece in gl.static_range(PIECES):
        raws += (share.once(x, x_row, 0.0, piece),)
    if PIECES == 1:
        ws += (share.shared(weight, 0) if WEIGHT else 0,)
        bs += (share.shared(bias, 0) if BIAS else 0,)
    share.begin()
    if LAYER:
        publish_means(share, raws)
    else:
        publish_squares(share, raws)
    if PIECES > 1:
        for piece in gl.static_range(PIECES):
            ws += (share.shared(weight, piece) if WEIGHT else 0,)
            bs += (share.shared(bias, piece) if BIAS else 0,)
    first, squares = share.gathered("0f00000000")
    if LAYER:
        m, squares = joined(first, squares, share.of_each(first), columns)
    else:
        squares = gl.sum(first, 1)
    r = gl.rsqrt(squares / columns.to(gl.float32) + eps)
    for piece in gl.static_range(PIECES):
        y = same(raws[piece]).to(gl.float32)
        if LAYER:
            y -= share.in_threads(m)[:, None, :, :, None]
        y *= share.in_threads(r)[:, None, :, :, None]
        if WEIGHT:
            y *= same(ws[piece]).to(gl.float32)[None, :, :, :, :]
        if BIAS:
            y += same(bs[piece]).to(gl.float32)[None, :, :, :, :]
        share.store(out, out_row, y, piece)
    if STATISTICS:  # noqa: SIM102 (known when this is compiled)
        if share.part == 0:
            index = share.index()
            gl.store(rstd + index, gl.convert_layout(r, index.type.layout))
            if LAYER:
                gl.store(mean + index, gl.convert_layout(m, index.type.layout))
