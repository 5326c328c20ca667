"""Softmax of long rows and its logarithm, forward: each program has one part of a row in shared
memory, and reads it again once the parts have told each other their numbers (rows/exchange.py)."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..rows.exchange import exchange_of
from ..rows.part import each_sum, part_of

NUMBERS = ["rows", "columns", "x_row", "out_row", "parts"]


@gluon.jit
def finite(maximum):
    """What is subtracted before the exponential: where there is no number above -inf, nothing;
    otherwise -inf - -inf would hide that the sum is 0. NaN stays."""
    return gl.where(maximum == -float("inf"), 0.0, maximum)


@gluon.jit
def exp(x):
    """e**x; below the smallest normal number 0, which saves four instructions of ten."""
    return gl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=r,r", [x * 1.4426950408889634], dtype=gl.float32,
        is_pure=True, pack=1)  # fmt: skip


@gluon.jit
def joined(top, total, other_top, other_total):
    """(maximum, sum of exponentials less it) of two sets of numbers. Rounded products, as they go
    over lanes: fused, each lane would have a sum of its own."""
    most = gl.maximum(top, other_top)  # without NaN, which the sum keeps
    ours, theirs = exp(top - finite(most)), exp(other_top - finite(most))
    return most, gl.fma(total, ours, 0.0) + gl.fma(other_total, theirs, 0.0)


@gluon.jit
def of_part(row, part, OWN: gl.constexpr):
    """(maximum, sum of exponentials less it) of a part of the row. A thread has a maximum of its
    own, so that only one reduction goes through all."""
    top, total = row.of_threads(-float("inf")), row.of_threads(0.0)
    for c in range(row.chunks(part)):
        v = row.known(row.of(part, c, OWN).to(gl.float32), part, c, -float("inf"))
        most = gl.maximum(top, gl.max(gl.max(v, 2), 0))
        e = exp(v - finite(most)[None, :, None])
        total = total * exp(top - finite(most)) + each_sum(e)
        top = most
    return gl.reduce((top, total), 0, joined)


@gluon.jit
def of_row(row, exchange):
    """(maximum, sum of exponentials less it) of all parts; of a row of -inf NaN."""
    tops, totals, there = exchange.gathered()
    each = exchange.each()
    if there == 0:
        for part in range(exchange.parts):
            top, total = of_part(row, part, False)
            tops, totals = gl.where(each == part, top, tops), gl.where(each == part, total, totals)
    inside = each < exchange.parts
    highest = gl.max(gl.where(inside, tops, -float("inf")), 0)
    their = gl.where(inside, gl.fma(totals, exp(tops - highest), 0.0), 0.0)
    return highest, gl.sum(their, 0)


@gluon.jit(do_not_specialize=NUMBERS)
def forward(
    x, out, words, rows, columns, x_row, out_row, parts, LOG: gl.constexpr, ONLINE: gl.constexpr,
    FULL: gl.constexpr, ALIGN: gl.constexpr, BLOCK: gl.constexpr, CHUNKS: gl.constexpr,
    MOST: gl.constexpr, PATIENCE: gl.constexpr,
):  # fmt: skip
    """`words`: of an Exchange. ONLINE is the other kernel's."""
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    row, index = part_of(x, columns, x_row, parts, FULL, BLOCK, CHUNKS)
    exchange = exchange_of(words, rows, parts, MOST, PATIENCE)
    row.arrive()
    top, total = of_part(row, row.part, True)
    exchange.publish(top, total)
    highest, total = of_row(row, exchange)
    before = exchange.leave()
    less, scale = gl.log(total), 1.0 / total
    for c in range(row.chunks(row.part)):
        v = row.kept(c).to(gl.float32) - highest
        row.write(out + index * out_row, c, v - less if LOG else exp(v) * scale)
    exchange.leave_zeros(before)
