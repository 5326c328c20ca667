"""Products of two matrices in plain Triton: `direct` (v0) and `tiled` (v1 to v4).

What the versions from v1 on add to each other is in their configurations and constants, not in the
text: v2 keeps loads in flight (num_stages), v3 has measured blocks, v4 does on the registers of the
product what else needed a kernel of its own. docs/operators.md says what each one's code shows.
"""

# The functions below are Triton, not Python: the compiler reads their text.
# mypy: ignore-errors

import triton
import triton.language as tl

from ..activations import activate

NUMBERS = [
    "m", "n", "k", "a_row", "a_column", "b_row", "b_column", "a_stride", "b_stride",
    "residual_stride", "out_stride",
]  # fmt: skip


@triton.jit(do_not_specialize=NUMBERS)
def direct(
    a, b, out, m, n, k, a_row, a_column, b_row, b_column, out_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """BLOCK_M x BLOCK_N elements a program, one k after the other: every element of a is read once
    for each column of blocks, every one of b for each row of them, and no tensor core takes part.
    Any strides."""
    tiles = tl.cdiv(n, BLOCK_N)
    row = (tl.program_id(0) // tiles * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    column = (tl.program_id(0) % tiles * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    a_at = a + row * a_row
    b_at = b + column * b_column
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for _ in range(k):
        x = tl.load(a_at, mask=row < m, other=0.0).to(tl.float32)
        y = tl.load(b_at, mask=column < n, other=0.0).to(tl.float32)
        acc += x[:, None] * y[None, :]
        a_at += a_column
        b_at += b_row
    inside = (row < m)[:, None] & (column < n)[None, :]
    place = row[:, None] * out_stride + column[None, :]
    tl.store(out + place, acc.to(out.dtype.element_ty), mask=inside)


@triton.jit
def tile_of(m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """(row, column) of this program's tile. The programs walk through GROUP_M rows of tiles column
    by column: those that run together share their operands in the L2 cache."""
    m_tiles = tl.cdiv(m, BLOCK_M)
    in_group = GROUP_M * tl.cdiv(n, BLOCK_N)
    first = tl.program_id(0) // in_group * GROUP_M
    rest = tl.program_id(0) % in_group
    height = tl.minimum(m_tiles - first, GROUP_M)
    return first + rest % height, rest // height


@triton.jit
def finish(
    acc, bias, residual, out, inside, columns, BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """activation(acc + bias) + residual, stored, in PARTS parts one after the other: what is
    computed on the way needs registers, too. `bias` points to the first column's, `residual` and
    `out` [rows, 1] to the rows' first elements; `inside` [rows, 1]: rows that there are;
    `columns`: so many there are."""
    BLOCK_M: tl.constexpr = acc.shape[0]
    BLOCK_N: tl.constexpr = acc.shape[1]
    if PARTS > 1:
        HALF: tl.constexpr = BLOCK_N // 2
        left, right = acc.reshape(BLOCK_M, 2, HALF).permute(0, 2, 1).split()
        finish(
            left, bias, residual, out, inside, columns, BIAS, ACTIVATION, RESIDUAL,
            PARTS // 2)  # fmt: skip
        tl.debug_barrier()  # or ptxas mixes the parts again
        finish(
            right, bias + HALF, residual + HALF, out + HALF, inside, columns - HALF, BIAS,
            ACTIVATION, RESIDUAL, PARTS // 2)  # fmt: skip
    else:
        column = tl.arange(0, BLOCK_N)
        mask = inside & (column < columns)[None, :]
        if BIAS:
            acc += tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
        acc = activate(acc, ACTIVATION)
        if RESIDUAL:
            acc += tl.load(residual + column[None, :], mask=mask).to(tl.float32)
        tl.store(out + column[None, :], acc.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=NUMBERS)
def tiled(
    a, b, bias, residual, out, m, n, k, a_stride, b_stride, residual_stride, out_stride,
    A_ROWS: tl.constexpr, B_ROWS: tl.constexpr, M_ALIGN: tl.constexpr, N_ALIGN: tl.constexpr,
    K_ALIGN: tl.constexpr, A_ALIGN: tl.constexpr, B_ALIGN: tl.constexpr, OUT_ALIGN: tl.constexpr,
    WIDE: tl.constexpr, EVEN_K: tl.constexpr, PRECISION: tl.constexpr, BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr, RESIDUAL: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """A BLOCK_M x BLOCK_N tile a program. Sizes and strides come in units of *_ALIGN. A_ROWS and
    B_ROWS: the rows of the operand are contiguous, else its columns are. Rows and columns beyond
    the end wrap round, so that only k may need a mask (not EVEN_K)."""
    m, n, k = m * M_ALIGN, n * N_ALIGN, k * K_ALIGN
    a_stride, b_stride = a_stride * A_ALIGN, b_stride * B_ALIGN
    residual_stride, out_stride = residual_stride * OUT_ALIGN, out_stride * OUT_ALIGN
    tile_m, tile_n = tile_of(m, n, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    step = tl.arange(0, BLOCK_K)
    a_at, b_at, from_step = row % m, column % n, step
    if WIDE:
        a_at, b_at, from_step = a_at.to(tl.int64), b_at.to(tl.int64), step.to(tl.int64)
    if A_ROWS:
        a_at = a + (a_at[:, None] * a_stride + step[None, :])
        a_step = BLOCK_K
    else:
        a_at = a + (a_at[:, None] + from_step[None, :] * a_stride)
        a_step = BLOCK_K * a_stride
    if B_ROWS:
        b_at = b + (from_step[:, None] * b_stride + b_at[None, :])
        b_step = BLOCK_K * b_stride
    else:
        b_at = b + (step[:, None] + b_at[None, :] * b_stride)
        b_step = BLOCK_K
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for first in range(0, k, BLOCK_K):
        if EVEN_K:
            x = tl.load(a_at)
            y = tl.load(b_at)
        else:
            x = tl.load(a_at, mask=(step < k - first)[None, :], other=0.0)
            y = tl.load(b_at, mask=(step < k - first)[:, None], other=0.0)
        acc = tl.dot(x, y, acc, input_precision=PRECISION)
        a_at += a_step
        b_at += b_step
    if WIDE:
        row = row.to(tl.int64)
    first_column = tile_n * BLOCK_N
    finish(
        acc, bias + first_column, residual + (row[:, None] * residual_stride + first_column),
        out + (row[:, None] * out_stride + first_column), (row < m)[:, None], n - first_column,
        BIAS, ACTIVATION, RESIDUAL, PARTS)  # fmt: skip
