"""LayerNorm and RMSNorm of long rows, forward, without a residual: each program of a cluster has
one part of some rows in registers, and of weight and bias, which serve all of these rows
(rows/cluster.py)."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..row_softmax.parts import finite
from ..rows.alone import same
from ..rows.cluster import among, share_of
from ..rows.part import commit_group, wait_group

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
def first_of(one, other):
    return one


@gluon.jit
def told_squares(share, raws):
    """The sums of squares."""
    v = raws[0].to(gl.float32)
    squares = each_sum(v * v)
    for piece in gl.static_range(1, share.PIECES):
        v = raws[piece].to(gl.float32)
        squares += each_sum(v * v)
    told = among(squares, gl.sum(squares, 2))
    if share.TOGETHER:
        told, _ = share.of_warps(told, told)
        told = share.in_all(gl.sum(told, 1), squares)
    return told, told


@gluon.jit
def means_of_warps(share, raws):
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
    return among(total, m), among(total, gl.sum(squares, 2))


@gluon.jit
def means_at_once(share, raws):
    """The same of numbers of 16 bits, converted once: by squares about one of the warp's numbers.
    They are at most n times the squares about the mean, for n numbers, so that the difference
    loses no more than n roundings of fp32."""
    v = share.known(raws[0].to(gl.float32), -float("inf"), 0)
    first = gl.reduce(gl.reduce(v, 4, first_of), 1, first_of)
    about = finite(gl.max(first, 2))
    total, squares = gl.zeros_like(first), gl.zeros_like(first)
    for piece in gl.static_range(share.PIECES):
        away = raws[piece].to(gl.float32) - about[:, :, None][:, None, :, :, None]
        away = share.known(away, 0.0, piece)
        total += each_sum(away)
        squares += each_sum(away * away)
    warp = gl.arange(0, gl.num_warps(), gl.SliceLayout(0, gl.SliceLayout(2, total.type.layout)))
    n = gl.maximum(share.of_warp(share.part, warp), 1.0)[None, :]
    its = gl.sum(total, 2)
    off = its / n
    its = gl.sum(squares, 2) - gl.fma(its, off, 0.0)
    return among(total, about + off), among(total, gl.maximum(its, 0.0))


@gluon.jit
def told_means(share, raws, ONCE: gl.constexpr):
    """Of warps, or of all warps of the program."""
    if ONCE:
        means, squares = means_at_once(share, raws)
    else:
        means, squares = means_of_warps(share, raws)
    if share.TOGETHER:
        threads = means
        means, squares = share.of_warps(means, squares)
        warp = gl.arange(0, gl.num_warps(), gl.SliceLayout(0, means.type.layout))
        n = share.of_warp(share.part, warp)[None, :]
        m, squares = joined(means, squares, n, share.columns)
        means, squares = share.in_all(m, threads), share.in_all(squares, threads)
    return means, squares


@gluon.jit
def of_rows(share, eps, LAYER: gl.constexpr):
    """(the mean, 1 / deviation) of each row, once all programs have told theirs; RMSNorm has no
    mean."""
    first, squares = share.gathered("0f00000000")
    m = first
    if LAYER:
        m, squares = joined(first, squares, share.of_each(first), share.whole)
    else:
        squares = gl.sum(first, 1)
    return m, gl.rsqrt(squares / share.whole.to(gl.float32) + eps)


@gluon.jit
def scaled(share, raw, m, r, LAYER: gl.constexpr, ONCE: gl.constexpr):
    """A piece less the mean, over the deviation."""
    y, scale = same(raw).to(gl.float32), share.in_threads(r)[:, None, :, :, None]
    if LAYER and ONCE:
        return y * scale - share.in_threads(m * r)[:, None, :, :, None]
    if LAYER:
        return (y - share.in_threads(m)[:, None, :, :, None]) * scale
    return y * scale


@gluon.jit(do_not_specialize=NUMBERS)
def forward(
    x, residual, weight, bias, out, total, mean, rstd,
    rows, columns, x_row, residual_row, out_row, eps,
    LAYER: gl.constexpr, RESIDUAL: gl.constexpr, WEIGHT: gl.constexpr, BIAS: gl.constexpr,
    STATISTICS: gl.constexpr, PARTS: gl.constexpr, FULL: gl.constexpr, ALIGN: gl.constexpr,
    ROWS: gl.constexpr, BLOCK: gl.constexpr, PIECES: gl.constexpr, TOGETHER: gl.constexpr,
    AHEAD: gl.constexpr, SHARED: gl.constexpr,
):  # fmt: skip
    """As norms/kernels.py. Weight and bias are under way before anything is waited for; of pieces,
    which leave no registers for that, before the other programs' numbers are, or as AHEAD says."""
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    share = share_of(x, rows, columns, PARTS, FULL, ROWS, BLOCK, PIECES, TOGETHER)
    ONCE: gl.constexpr = SHARED and x.dtype.element_ty.primitive_bitwidth == 16
    raws, ws, bs = (), (), ()
    for piece in gl.static_range(PIECES):
        raws += (share.once(x, x_row, 0.0, piece),)
    if SHARED:
        if WEIGHT:
            weights = share.fetched(weight)
        if BIAS:
            biases = share.fetched(bias)
        commit_group()
    elif PIECES == 1:
        ws += (share.shared(weight, 0) if WEIGHT else 0,)
        bs += (share.shared(bias, 0) if BIAS else 0,)
    share.begin()
    if LAYER:
        one, other = told_means(share, raws, ONCE)
    else:
        one, other = told_squares(share, raws)
    share.publish(one, other)
    if PIECES > 1 and not SHARED:
        for piece in gl.static_range(1 if AHEAD else PIECES):
            ws += (share.shared(weight, piece) if WEIGHT else 0,)
            bs += (share.shared(bias, piece) if BIAS else 0,)
    m, r = of_rows(share, eps, LAYER)
    if SHARED:
        wait_group(0)
    for piece in gl.static_range(PIECES):
        y = scaled(share, raws[piece], m, r, LAYER, ONCE)
        if WEIGHT:
            w = share.fetched_piece(weights, piece) if SHARED else same(ws[piece])[None, :, :, :, :]
            y *= w.to(gl.float32)
        if BIAS:
            b = share.fetched_piece(biases, piece) if SHARED else same(bs[piece])[None, :, :, :, :]
            y += b.to(gl.float32)
        if AHEAD and piece + 1 < PIECES:
            ws += (share.shared(weight, piece + 1) if WEIGHT else 0,)
            bs += (share.shared(bias, piece + 1) if BIAS else 0,)
        share.store(out, out_row, y, piece)
    if STATISTICS:  # noqa: SIM102 (known when this is compiled)
        if share.part == 0:
            index = share.index()
            gl.store(rstd + index, gl.convert_layout(r, index.type.layout))
            if LAYER:
                gl.store(mean + index, gl.convert_layout(m, index.type.layout))
