"""Cross entropy of rows of logits, forward and backward, computed in fp32. The forward pass reads a
row once, and takes one exponential an element: of a row in registers (WHOLE), or along a loop with
a running maximum. The backward pass reads and writes it once; it needs no more than the forward's
log-sum-exp. Columns and strides come in units of ALIGN."""

# The functions below are Triton, not Python: the compiler reads their text.
# mypy: ignore-errors

import triton
import triton.language as tl

from ..row_softmax.kernels import finite
from ..rows.blocks import block_of, product


@triton.jit
def picked(logits_row, target, ignored, columns):
    """The logits of the targets. A target that is not a column gives NaN, and reads nothing."""
    known = (target >= 0) & (target < columns) & (target != ignored)
    value = tl.load(logits_row + tl.where(known, target, 0), mask=known, other=0.0)
    return tl.where(known | (target == ignored), value.to(tl.float32), float("nan"))


@triton.jit
def reduced(loss, target, out, divisor, rows, ignored, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of the losses over `divisor`, the number of those that count, or 1."""
    total = tl.zeros([BLOCK], tl.float32)
    number = tl.zeros([BLOCK], tl.float32)
    for first in range(0, rows, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(loss + at, mask=at < rows, other=0.0)
        if MEAN:
            wanted = tl.load(target + at, mask=at < rows, other=ignored)
            number += tl.where(wanted == ignored, 0.0, 1.0)
    count = tl.sum(number, 0) if MEAN else 1.0
    tl.store(out, tl.sum(total, 0) / count)
    tl.store(divisor, count)


@triton.jit(do_not_specialize=["rows", "columns", "x_row", "ignored"])
def forward(
    x, target, loss, lse, out, divisor, done, rows, columns, x_row, ignored, smoothing, z_scale,
    SMOOTH: tl.constexpr, REDUCE: tl.constexpr, MEAN: tl.constexpr, ALIGN: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """The loss of each row (0 where the target is `ignored`) and its log-sum-exp. REDUCE: and what
    `reduced` makes of the losses, always in the same order, in the program that is the last to be
    `done`: a count that is zero before and after."""
    columns, x_row = columns * ALIGN, x_row * ALIGN
    part = tl.program_id(0)
    place = (part * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    wanted = tl.load(target + place, mask=place < rows, other=ignored)
    right = picked(x + place * x_row, wanted, ignored, columns)
    if WHOLE:
        row, column, inside = block_of(part, rows, columns, 0, ROWS, BLOCK)
        v = tl.load(x + row * x_row + column, mask=inside, other=-float("inf")).to(tl.float32)
        most = tl.max(v, 1)
        sums = tl.sum(tl.exp(v - finite(most)[:, None]), 1)
        if SMOOTH:
            logits = tl.sum(tl.where(inside, v, 0.0), 1)
    else:
        # Each of GROUP parts of a block lies in the threads alike, so that every so many elements
        # of a thread have a maximum of their own: one rescaling, and no lane waits for another.
        top = tl.full([ROWS, BLOCK // GROUP], -float("inf"), tl.float32)
        total = tl.zeros([ROWS, BLOCK // GROUP], tl.float32)
        shares = tl.zeros([ROWS, BLOCK // GROUP], tl.float32)
        for first in range(0, columns, BLOCK):
            row, column, inside = block_of(part, rows, columns, first, ROWS, BLOCK)
            v = tl.load(x + row * x_row + column, mask=inside, other=-float("inf")).to(tl.float32)
            groups = tl.reshape(v, [ROWS, GROUP, BLOCK // GROUP])
            higher = tl.maximum(top, tl.max(groups, 1))
            weights = tl.sum(tl.exp(groups - finite(higher)[:, None, :]), 1)
            total = total * tl.exp(top - finite(higher)) + weights
            top = higher
            if SMOOTH:
                known = tl.reshape(tl.where(inside, v, 0.0), [ROWS, GROUP, BLOCK // GROUP])
                shares += tl.sum(known, 1)
        most = tl.max(top, 1)
        sums = tl.sum(product(total, tl.exp(top - finite(most)[:, None])), 1)
        if SMOOTH:
            logits = tl.sum(shares, 1)
    log_sum = most + tl.log(sums)
    value = log_sum - right
    if SMOOTH:
        mean = logits / columns.to(tl.float32)
        value = (1.0 - smoothing) * value + smoothing * (log_sum - mean)
    value += z_scale * log_sum * log_sum
    value = tl.where(wanted == ignored, 0.0, value)
    tl.store(loss + place, value, mask=place < rows)
    tl.store(lse + place, log_sum, mask=place < rows)
    if REDUCE:
        tl.debug_barrier()  # all of the program's losses are written
        if tl.atomic_add(done, 1, sem="acq_rel") + 1 == tl.num_programs(0):
            reduced(loss, target, out, divisor, rows, ignored, MEAN, 1024)
            tl.atomic_xchg(done, 0, sem="relaxed")


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
