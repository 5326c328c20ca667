"""Cross entropy of rows of logits, forward and backward, computed in fp32. The forward pass reads a
row once (sums.py), by one program or by several (PARTS). The backward pass reads and writes it
once; it needs no more than the forward's log-sum-exp. Columns and strides come in units of ALIGN.

What programs tell each other is a word of 64 bits: a number of fp32 and another one beside it, that
are there together, so nobody waits for memory to be in order. A word of zeros is one that is not
there yet; words are zero before a launch, and after it. The first word counts groups, then there
is one to count the programs of each group, LINE words apart; then come each group's sum, each
program's word, and, of parts of rows whose logits are summed up, another one of each program.
A program draws its number when its last loads are under way, and who draws the last one of a group
works out what that adds up to: all others have begun by then, so it waits for nobody who might
need its place."""

# The functions below are Triton, not Python: the compiler reads their text.
# mypy: ignore-errors

import triton
import triton.language as tl

from ...triton_kit.aggregates import aggregate
from ..losses.sums import blocks, exp, in_pieces, of_blocks, of_pieces
from ..row_softmax.kernels import finite
from ..rows.blocks import block_of, product

LINE = tl.constexpr(16)  # words, of 128 bytes: counts apart, so that they are counted side by side


@triton.jit
def picked(logits_row, target, ignored, columns):
    """The logits of the targets. A target that is not a column gives NaN, and reads nothing."""
    known = (target >= 0) & (target < columns) & (target != ignored)
    value = tl.load(logits_row + tl.where(known, target, 0), mask=known, other=0.0)
    return tl.where(known | (target == ignored), value.to(tl.float32), float("nan"))


@triton.jit
def word_of(number, beside):
    """Of fp32 and int32; zero only if both are."""
    return beside.to(tl.int64) << 32 | number.to(tl.uint32, bitcast=True).to(tl.int64)


@triton.jit
def number_of(word):
    return word.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def beside_of(word):
    return (word >> 32).to(tl.int32)


@triton.jit
def publish(word, value):
    """Of one element: nobody else adds to this word. (What returns nothing is not waited for.)"""
    tl.atomic_add(word + tl.arange(0, 1), tl.zeros([1], tl.int64) + value, sem="relaxed")


@triton.jit
def drawn(word):
    """How many have drawn before."""
    return tl.atomic_add(word, 1, sem="relaxed")


@triton.jit
def taken(words, inside):
    """A matrix of words, as soon as they are there; zeros stay behind."""
    nothing = tl.zeros_like(inside).to(tl.int64)
    found = tl.atomic_xchg(words, nothing, mask=inside, sem="relaxed")
    missing = inside & (found == 0)
    while tl.max(tl.max(missing.to(tl.int32), 1), 0) > 0:
        later = tl.atomic_xchg(words, nothing, mask=missing, sem="relaxed")
        found = tl.where(missing, later, found)
        missing = missing & (found == 0)
    return found


@triton.jit
def added(words, n, STEP: tl.constexpr):
    """The sums of `n` words' numbers, and of how many losses that count are in them: beside a sum
    is one more. Always in the same order."""
    total = 0.0
    counted = 0
    for first in range(0, n, STEP):
        at = (first + tl.arange(0, STEP))[:, None]
        found = taken(words + at, at < n)
        total += tl.sum(tl.sum(tl.where(at < n, number_of(found), 0.0), 1), 0)
        counted += tl.sum(tl.sum(tl.where(at < n, beside_of(found) - 1, 0), 1), 0)
    return total, counted


@triton.jit
def reduced(
    out, divisor, words, group, groups, total, counted, MEAN: tl.constexpr, STEP: tl.constexpr
):
    """`total` of this group's losses, of which so many are `counted`. The last group to come here
    writes the sum of all over the number of those that count, or over 1."""
    sums = words + LINE + LINE * groups
    publish(sums + group, word_of(total, counted + 1))
    if drawn(words) == groups - 1:
        total, counted = added(sums, groups, STEP)
        count = counted.to(tl.float32) if MEAN else 1.0
        tl.store(out, total / count)
        tl.store(divisor, count)
        tl.atomic_xchg(words, 0, sem="relaxed")


@aggregate
class Losses:
    """What a row's loss is made of, and where it goes."""

    loss: tl.tensor
    lse: tl.tensor
    rows: tl.tensor
    columns: tl.tensor
    ignored: tl.tensor
    smoothing: tl.tensor
    z_scale: tl.tensor
    SMOOTH: tl.constexpr


@triton.jit
def written(of, place, log_sum, right, logits, wanted, KEEP: tl.constexpr):
    """(the sum of these rows' losses, how many count); the log-sum-exps are written, and KEEP: so
    are the losses."""
    value = log_sum - right
    if of.SMOOTH:
        mean = logits / of.columns.to(tl.float32)
        value = (1.0 - of.smoothing) * value + of.smoothing * (log_sum - mean)
    value += of.z_scale * log_sum * log_sum
    value = tl.where(wanted == of.ignored, 0.0, value)
    tl.store(of.lse + place, log_sum, mask=place < of.rows)
    if KEEP:
        tl.store(of.loss + place, value, mask=place < of.rows)
    return tl.sum(value, 0), tl.sum((wanted != of.ignored).to(tl.int32), 0)


@triton.jit
def rows_of_parts(
    of, x, target, own, programs, group, x_row, PARTS: tl.constexpr, EACH: tl.constexpr
):
    """What `written` says and does of a group's rows, from their parts' words."""
    place = group * (EACH // PARTS) + tl.arange(0, EACH // PARTS)
    wanted = tl.load(target + place, mask=place < of.rows, other=of.ignored)
    right = picked(x + place.to(tl.int64) * x_row, wanted, of.ignored, of.columns)
    at = place[:, None] * PARTS + tl.arange(0, PARTS)[None, :]
    found = taken(own + at, at < programs)
    top = tl.where(at < programs, number_of(found), 0.0)
    most = tl.max(top, 1)
    share = beside_of(found).to(tl.float32, bitcast=True)
    log_sum = most + tl.log(tl.sum(product(share, exp(top - finite(most)[:, None])), 1))
    logits = most
    if of.SMOOTH:
        logits = tl.sum(number_of(taken(own + programs + at, at < programs)), 1)
    return written(of, place, log_sum, right, logits, wanted, True)


@triton.jit(do_not_specialize=["rows", "columns", "x_row", "ignored"])
def forward(
    x, target, loss, lse, out, divisor, words, rows, columns, x_row, ignored, smoothing, z_scale,
    SMOOTH: tl.constexpr, REDUCE: tl.constexpr, MEAN: tl.constexpr, ALIGN: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr, PIECE: tl.constexpr,
    GROUP: tl.constexpr, VECTOR: tl.constexpr, PARTS: tl.constexpr, EACH: tl.constexpr,
    STEP: tl.constexpr,
):  # fmt: skip
    """The log-sum-exp of each row and its loss (0 where the target is `ignored`); REDUCE: and what
    `reduced` makes of the losses. EACH programs are a group."""
    columns, x_row = columns * ALIGN, x_row * ALIGN
    program, programs = tl.program_id(0), tl.num_programs(0)
    group, groups = program // EACH, tl.cdiv(programs, EACH)
    count, own = words + LINE + LINE * group, words + LINE + (LINE + 1) * groups
    length = tl.cdiv(tl.cdiv(columns, BLOCK), PARTS) * BLOCK
    start = program % PARTS * length
    end = tl.minimum(start + length, columns)
    place = (program // PARTS * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    if PARTS == 1:
        wanted = tl.load(target + place, mask=place < rows, other=ignored)
    begin = x + tl.minimum(place, rows - 1) * x_row  # a row instead of one that does not exist
    if WHOLE:
        v, inside = in_pieces(begin, columns, BLOCK, PIECE)
    else:
        last = start + tl.maximum(end - start - 1, 0) // BLOCK * BLOCK
        top, total, shares = blocks(begin, start, last, SMOOTH, BLOCK, GROUP, VECTOR)
        column = (last + tl.arange(0, BLOCK))[None, :]
        inside = column < end
        v = tl.load(begin[:, None] + column, mask=inside, other=-float("inf"))
    # What else is to be waited for, while the last block is under way.
    number = drawn(count) if REDUCE or PARTS > 1 else 0
    if PARTS == 1:
        right = picked(begin, wanted, ignored, columns)
    v = v.to(tl.float32)
    if WHOLE:
        most, sums, logits = of_pieces(v, inside)
    else:
        most, sums, logits = of_blocks(v, inside, top, total, shares, SMOOTH, GROUP, VECTOR)
    members = tl.minimum(EACH, programs - group * EACH)
    of = Losses(
        loss=loss, lse=lse, rows=rows, columns=columns, ignored=ignored, smoothing=smoothing,
        z_scale=z_scale, SMOOTH=SMOOTH)  # fmt: skip
    if PARTS == 1:
        log_sum = most + tl.log(sums)
        sum_of_own, counted = written(of, place, log_sum, right, logits, wanted, not REDUCE)
        if REDUCE:
            publish(own + program, word_of(sum_of_own, counted + 1))
            if number == members - 1:
                tl.atomic_xchg(count, 0, sem="relaxed")
                group_sum, of_group = added(own + group * EACH, members, STEP)
                reduced(out, divisor, words, group, groups, group_sum, of_group, MEAN, STEP)
    else:
        publish(own + program, word_of(most, sums.to(tl.int32, bitcast=True)))
        if SMOOTH:
            publish(own + programs + program, word_of(logits, place.to(tl.int32) * 0 + 1))
        if number == members - 1:
            tl.atomic_xchg(count, 0, sem="relaxed")
            group_sum, of_group = rows_of_parts(
                of, x, target, own, programs, group, x_row, PARTS, EACH
            )
            if REDUCE:
                reduced(out, divisor, words, group, groups, group_sum, of_group, MEAN, STEP)


@triton.jit(do_not_specialize=["rows", "columns", "x_row", "out_row", "grad_step", "ignored"])
def backward(
    x, target, lse, grad, divisor, out, rows, columns, x_row, out_row, grad_step, ignored,
    smoothing, z_scale, DIVIDE: tl.constexpr, ALIGN: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """The gradient of the logits, a block of a row a program; `grad` is that of each row's loss,
    or, with step 0, of all. `out` may be x."""
    columns, x_row = columns * ALIGN, x_row * ALIGN
    out_row = out_row * ALIGN
    blocks = tl.cdiv(columns, BLOCK)
    part = tl.program_id(0) // blocks
    first = tl.program_id(0) % blocks * BLOCK
    row, column, inside = block_of(part, rows, columns, first, ROWS, BLOCK)
    v = tl.load(x + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
    wanted = tl.load(target + row, mask=row < rows, other=ignored)
    log_sum = tl.load(lse + row, mask=row < rows, other=0.0)
    scale = tl.load(grad + row * grad_step, mask=row < rows, other=0.0)
    if DIVIDE:
        scale = scale / tl.load(divisor)
    even = smoothing / columns.to(tl.float32)
    right = tl.where(column == wanted, 1.0 - smoothing, 0.0)
    slope = tl.exp(v - log_sum) * (1.0 + 2.0 * z_scale * log_sum) - right - even
    slope = tl.where(wanted == ignored, 0.0, slope * scale)
    tl.store(out + row * out_row + column, slope, mask=inside)
