"""Cross entropy of rows of logits, forward and backward, computed in fp32. The forward pass reads a
row once, and so does the backward pass, which needs no more than the forward's log-sum-exp. Columns
and strides come in units of ALIGN."""

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


@triton.jit(do_not_specialize=["rows", "columns", "x_row", "ignored"])
def forward(
    x, target, loss, lse, rows, columns, x_row, ignored, smoothing, z_scale,
    SMOOTH: tl.constexpr, ALIGN: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """The loss of each row (0 where the target is `ignored`) and its log-sum-exp."""
    columns, x_row = columns * ALIGN, x_row * ALIGN
    part = tl.program_id(0)
    top = tl.full([ROWS, BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    logits = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in range(0, columns, BLOCK):
        row, column, inside = block_of(part, rows, columns, first, ROWS, BLOCK)
        v = tl.load(x + row * x_row + column, mask=inside, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, v)
        total = total * tl.exp(top - finite(higher)) + tl.exp(v - finite(higher))
        top = higher
        if SMOOTH:
            logits += tl.where(inside, v, 0.0)
    most = tl.max(top, 1)
    parts = product(total, tl.exp(top - finite(most)[:, None]))
    log_sum = most + tl.log(tl.sum(parts, 1))
    place = (part * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    wanted = tl.load(target + place, mask=place < rows, other=ignored)
    value = log_sum - picked(x + place * x_row, wanted, ignored, columns)
    if SMOOTH:
        mean = tl.sum(logits, 1) / columns.to(tl.float32)
        value = (1.0 - smoothing) * value + smoothing * (log_sum - mean)
    value += z_scale * log_sum * log_sum
    value = tl.where(wanted == ignored, 0.0, value)
    tl.store(loss + place, value, mask=place < rows)
    tl.store(lse + place, log_sum, mask=place < rows)


@triton.jit(do_not_specialize=["rows", "columns", "x_row", "out_row", "grad_step", "ignored"])
def backward(
    x, target, lse, grad, out, rows, columns, x_row, out_row, grad_step, ignored, smoothing,
    z_scale, ALIGN: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """The gradient of the logits; `grad` is that of each row's loss, or, with step 0, of all. `out`
    may be x."""
    columns, x_row = columns * ALIGN, x_row * ALIGN
    out_row = out_row * ALIGN
    part = tl.program_id(0)
    place = (part * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64)
    wanted = tl.load(target + place, mask=place < rows, other=ignored)
    log_sum = tl.load(lse + place, mask=place < rows, other=0.0)
    scale = tl.load(grad + place * grad_step, mask=place < rows, other=0.0)
    scale = tl.where(wanted == ignored, 0.0, scale)
    even = smoothing / columns.to(tl.float32)
    for first in range(0, columns, BLOCK):
        row, column, inside = block_of(part, rows, columns, first, ROWS, BLOCK)
        v = tl.load(x + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
        weight = tl.exp(v - log_sum)
        right = tl.where(column == wanted, 1.0 - smoothing, 0.0)
        slope = weight * (1.0 + 2.0 * z_scale * log_sum) - right - even
        slope = tl.where(wanted == ignored, 0.0, slope * scale)
        tl.store(out + row * out_row + column, slope, mask=inside)
