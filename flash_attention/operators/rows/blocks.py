"""What kernels over rows share."""

# The functions below are Triton, not Python: the compiler reads their text.
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def block_of(part, rows, columns, first, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """(ROWS rows, the `part`-th such group; BLOCK columns from `first` on; which of both exist)."""
    row = (part * ROWS + tl.arange(0, ROWS))[:, None]
    column = (first + tl.arange(0, BLOCK))[None, :]
    return row.to(tl.int64), column, (row < rows) & (column < columns)


@triton.jit
def product(a, b):
    """a * b, rounded, for a sum over lanes. Fused with an addition of that sum, it would be rounded
    in the one lane and not in the other, and each lane would have a sum of its own."""
    return tl.fma(a, b, 0.0)


@triton.jit
def sum_columns(partial, out, parts, columns, block, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """A block of columns of a matrix of fp32 with `parts` rows, added in their order."""
    column = block * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([PARTS, BLOCK], tl.float32)
    for first in range(0, parts, PARTS):
        part = (first + tl.arange(0, PARTS))[:, None]
        inside = (part < parts) & (column < columns)[None, :]
        at = part.to(tl.int64) * columns + column[None, :]
        total += tl.load(partial + at, mask=inside, other=0.0)
    tl.store(out + column, tl.sum(total, 0).to(out.dtype.element_ty), mask=column < columns)


@triton.jit(do_not_specialize=["first_parts", "second_parts", "columns"])
def sum_partials(
    first, second, first_out, second_out, first_parts, second_parts, columns, ALIGN: tl.constexpr,
    BLOCK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The columns of one matrix, or of two: the second's programs come behind the first's."""
    columns = columns * ALIGN
    blocks = tl.cdiv(columns, BLOCK)
    block = tl.program_id(0)
    if block < blocks:
        sum_columns(first, first_out, first_parts, columns, block, BLOCK, PARTS)
    else:
        sum_columns(second, second_out, second_parts, columns, block - blocks, BLOCK, PARTS)
