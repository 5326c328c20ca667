"""Softmax of rows and its logarithm, forward and backward, computed in fp32.

WHOLE: a row stays in registers between its only load and its only store. Else a loop goes over it
in blocks; the maximum and the sum are found together (online) or one after the other (two passes),
and what is read again is meant to stay in the cache until it was. Columns and strides come in units
of ALIGN.
"""

# The functions below are Triton, not Python: the compiler reads their text.
# mypy: ignore-errors

import triton
import triton.language as tl

from ..rows.blocks import block_of, product


@triton.jit
def finite(maximum):
    """What is subtracted before the exponential: where a row has no number above -inf, nothing;
    otherwise -inf - -inf would hide that the row's sum is 0. NaN stays."""
    return tl.where(maximum == -float("inf"), 0.0, maximum)


NUMBERS = ["rows", "columns", "x_row", "out_row"]


@triton.jit(do_not_specialize=NUMBERS)
def forward(
    x, out, rows, columns, x_row, out_row,
    LOG: tl.constexpr, ONLINE: tl.constexpr, ALIGN: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    columns = columns * ALIGN
    x_row, out_row = x_row * ALIGN, out_row * ALIGN
    if WHOLE:
        row, column, inside = block_of(tl.program_id(0), rows, columns, 0, ROWS, BLOCK)
        v = tl.load(x + row * x_row + column, mask=inside, other=-float("inf")).to(tl.float32)
        shifted = v - tl.max(v, 1, keep_dims=True)
        weights = tl.exp(shifted)
        total = tl.sum(weights, 1, keep_dims=True)
        y = shifted - tl.log(total) if LOG else weights * (1.0 / total)
        tl.store(out + row * out_row + column, y, mask=inside)
    else:
        top = tl.full([ROWS, BLOCK], -float("inf"), tl.float32)
        total = tl.zeros([ROWS, BLOCK], tl.float32)
        if ONLINE:  # of every column of the block by itself; one reduction at the end
            for first in range(0, columns, BLOCK):
                row, column, inside = block_of(tl.program_id(0), rows, columns, first, ROWS, BLOCK)
                v = tl.load(
                    x + row * x_row + column, mask=inside, other=-float("inf"),
                    eviction_policy="evict_last")  # fmt: skip
                v = v.to(tl.float32)
                higher = tl.maximum(top, v)  # without NaN, which the sum keeps
                total = total * tl.exp(top - finite(higher)) + tl.exp(v - finite(higher))
                top = higher
            most = tl.max(top, 1, keep_dims=True)
            total = tl.sum(product(total, tl.exp(top - most)), 1, keep_dims=True)
        else:
            for first in range(0, columns, BLOCK):
                row, column, inside = block_of(tl.program_id(0), rows, columns, first, ROWS, BLOCK)
                v = tl.load(
                    x + row * x_row + column, mask=inside, other=-float("inf"),
                    eviction_policy="evict_last")  # fmt: skip
                top = tl.maximum(top, v.to(tl.float32))
            most = tl.max(top, 1, keep_dims=True)
            for first in range(0, columns, BLOCK):
                row, column, inside = block_of(tl.program_id(0), rows, columns, first, ROWS, BLOCK)
                v = tl.load(
                    x + row * x_row + column, mask=inside, other=-float("inf"),
                    eviction_policy="evict_last")  # fmt: skip
                total += tl.exp(v.to(tl.float32) - most)
            total = tl.sum(total, 1, keep_dims=True)
        for first in range(0, columns, BLOCK):
            row, column, inside = block_of(tl.program_id(0), rows, columns, first, ROWS, BLOCK)
            v = tl.load(
                x + row * x_row + column, mask=inside, other=-float("inf"),
                eviction_policy="evict_first").to(tl.float32)  # fmt: skip
            y = v - most - tl.log(total) if LOG else tl.exp(v - most) * (1.0 / total)
            tl.store(out + row * out_row + column, y, mask=inside)


@triton.jit
def products(y, grad, LOG: tl.constexpr):
    """What is summed over a row of the backward pass."""
    return grad if LOG else product(y, grad)


@triton.jit
def slope(y, grad, total, LOG: tl.constexpr):
    """The gradient of x, from that of the output y and the row's sum."""
    return grad - tl.exp(y) * total if LOG else y * (grad - total)


@triton.jit(do_not_specialize=["rows", "columns", "y_row", "grad_row", "out_row"])
def backward(
    y, grad, out, rows, columns, y_row, grad_row, out_row,
    LOG: tl.constexpr, ALIGN: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    columns, y_row = columns * ALIGN, y_row * ALIGN
    grad_row, out_row = grad_row * ALIGN, out_row * ALIGN
    if WHOLE:
        row, column, inside = block_of(tl.program_id(0), rows, columns, 0, ROWS, BLOCK)
        a = tl.load(y + row * y_row + column, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(grad + row * grad_row + column, mask=inside, other=0.0).to(tl.float32)
        total = tl.sum(products(a, g, LOG), 1, keep_dims=True)
        tl.store(out + row * out_row + column, slope(a, g, total, LOG), mask=inside)
    else:
        total = tl.zeros([ROWS, BLOCK], tl.float32)
        for first in range(0, columns, BLOCK):
            row, column, inside = block_of(tl.program_id(0), rows, columns, first, ROWS, BLOCK)
            a = tl.load(y + row * y_row + column, mask=inside, other=0.0).to(tl.float32)
            g = tl.load(grad + row * grad_row + column, mask=inside, other=0.0).to(tl.float32)
            total += products(a, g, LOG)
        whole = tl.sum(total, 1, keep_dims=True)
        for first in range(0, columns, BLOCK):
            row, column, inside = block_of(tl.program_id(0), rows, columns, first, ROWS, BLOCK)
            a = tl.load(y + row * y_row + column, mask=inside, other=0.0).to(tl.float32)
            g = tl.load(grad + row * grad_row + column, mask=inside, other=0.0).to(tl.float32)
            tl.store(out + row * out_row + column, slope(a, g, whole, LOG), mask=inside)
