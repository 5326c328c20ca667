"""Softmax of long rows and its logarithm, forward: each program has one part of its rows, and takes
one exponential an element. While the parts of one row wait for each other (rows/exchange.py), those
of the next are computed."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..rows.exchange import exchange_of
from ..rows.ring import each_sum, started, wait_group

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
def of_part(ring, load, LOG: gl.constexpr):
    """(what is kept of a part: for the logarithm its elements, else their exponentials less each
    thread's maximum; these maxima; the part's; its sum of exponentials less that). A thread has a
    maximum of its own, so that only one reduction goes through all."""
    v = ring.arrived(load, ring.SLOTS - 1)
    ring.fill(load + ring.SLOTS)
    if not ring.FULL:
        v = gl.where(ring.column() < ring.columns, v, -float("inf"))
    wide = v.to(gl.float32)
    top = gl.max(gl.max(wide, 2), 0)
    e = exp(wide - finite(top)[None, :, None])
    most, total = gl.reduce((top, each_sum(e)), 0, joined)
    return v if LOG else e, top, most, total


@gluon.jit
def of_row(exchange, turn, first, second):
    """(maximum, sum of exponentials less it) of all parts, whose words were asked for; of a row of
    -inf NaN."""
    highest, each, their = exchange.gathered(turn, first, second, True)
    return highest, gl.sum(gl.fma(their, exp(each - highest), 0.0), 0)


@gluon.jit
def over_row(kept, top, highest, total, LOG: gl.constexpr):
    if LOG:
        return kept.to(gl.float32) - highest - gl.log(total)
    return kept * (exp(top - highest) / total)[None, :, None]


@gluon.jit(do_not_specialize=NUMBERS)
def forward(
    x, out, words, rows, columns, x_row, out_row, parts, LOG: gl.constexpr, ONLINE: gl.constexpr,
    FULL: gl.constexpr, ALIGN: gl.constexpr, BLOCK: gl.constexpr, SLOTS: gl.constexpr,
    MOST: gl.constexpr, LAG: gl.constexpr,
):  # fmt: skip
    """`words`: of an Exchange. ONLINE is the other kernel's. LAG is 1: a part stays in registers
    until the next one has joined it there."""
    gl.static_assert(LAG == 1)
    columns, x_row, out_row = columns * ALIGN, x_row * ALIGN, out_row * ALIGN
    ring = started(x, rows, columns, x_row, parts, FULL, BLOCK, SLOTS)
    exchange = exchange_of(words, parts, MOST)
    turns = gl.cdiv(rows - ring.group, ring.groups)
    kept, top, most, total = of_part(ring, gl.to_tensor(0), LOG)
    exchange.publish(0, most, total)
    for turn in range(1, turns + 1):
        first, second = exchange.asked(turn - 1)
        later, its_top, most, total = of_part(ring, turn, LOG)
        if turn < turns:
            exchange.publish(turn, most, total)
        highest, sums = of_row(exchange, turn - 1, first, second)
        ring.write(out, out_row, turn - 1, over_row(kept, top, highest, sums, LOG))
        kept, top = later, its_top
    wait_group(0)  # loads of nothing, whose places leave() may use
    exchange.leave()
