"""What is summed of rows of logits: short rows as a whole, in pieces that few lanes take; longer
ones in a loop of blocks with running maxima: one exponential an element, and one more for every
GROUP * VECTOR of them."""

# The functions below are Triton, not Python: the compiler reads their text.
# mypy: ignore-errors

import triton
import triton.language as tl

from ...triton_kit.versions import minor_of
from ..row_softmax.kernels import finite
from ..rows.blocks import product

# The dimension of a row's pieces, beside that of rows: one that Triton gives to each thread as a
# whole. 3.6 hands lanes out to the first of two before the last.
PIECES = tl.constexpr(1 if minor_of(triton.__version__) < (3, 7) else 0)


@triton.jit
def exp(x):
    """e**x; below the smallest normal number 0, which saves three instructions of five."""
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=r,r", [x * 1.4426950408889634], dtype=tl.float32,
        is_pure=True, pack=1)  # fmt: skip


@triton.jit
def each_thread(v, GROUP: tl.constexpr, VECTOR: tl.constexpr):
    """The columns of a block as GROUP times (what is not of one thread) times VECTOR."""
    return tl.reshape(v, [v.shape[0], GROUP, v.shape[1] // (GROUP * VECTOR), VECTOR])


@triton.jit
def joined(v, top, total, GROUP: tl.constexpr, VECTOR: tl.constexpr):
    """(maxima, sums of exponentials less them) of `top`, `total` and the block `v`: of each thread
    its own, so that no lane waits for another."""
    each = each_thread(v, GROUP, VECTOR)
    higher = tl.maximum(top, tl.max(tl.max(each, 3), 1))
    weights = tl.sum(tl.sum(exp(each - finite(higher)[:, None, :, None]), 3), 1)
    return higher, total * exp(top - finite(higher)) + weights


@triton.jit
def shared(v, GROUP: tl.constexpr, VECTOR: tl.constexpr):
    """The sums of `v` beside those of `joined`."""
    return tl.sum(tl.sum(each_thread(v, GROUP, VECTOR), 3), 1)


@triton.jit
def blocks(
    begin, start, last,
    SMOOTH: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """(maxima, sums of exponentials less them, sums) of each thread, of the blocks from `start` to
    `last` of the rows that begin there. All their columns exist, so there is no mask."""
    top = tl.full([begin.shape[0], BLOCK // (GROUP * VECTOR)], -float("inf"), tl.float32)
    total = tl.zeros_like(top)
    shares = tl.zeros_like(top)
    for first in range(start, last, BLOCK):
        v = tl.load(begin[:, None] + (first + tl.arange(0, BLOCK))[None, :]).to(tl.float32)
        top, total = joined(v, top, total, GROUP, VECTOR)
        if SMOOTH:
            shares += shared(v, GROUP, VECTOR)
    return top, total, shares


@triton.jit
def in_pieces(begin, columns, BLOCK: tl.constexpr, PIECE: tl.constexpr):
    """(the rows that begin there, cut into pieces of so many columns; which columns exist)."""
    first = tl.expand_dims((tl.arange(0, BLOCK // PIECE) * PIECE)[:, None], 1 - PIECES)
    column = first + tl.arange(0, PIECE)[None, None, :]
    inside = column < columns
    at = tl.expand_dims(begin[:, None], PIECES) + column
    return tl.load(at, mask=inside, other=-float("inf")), inside


@triton.jit
def of_pieces(v, inside):
    """(maximum, sum of exponentials less it, sum) of each of these rows."""
    most = tl.max(tl.max(v, PIECES), 1)
    weights = exp(v - tl.expand_dims(finite(most)[:, None], PIECES))
    logits = tl.where(inside, v, 0.0)
    return most, tl.sum(tl.sum(weights, PIECES), 1), tl.sum(tl.sum(logits, PIECES), 1)


@triton.jit
def of_blocks(
    v, inside, top, total, shares,
    SMOOTH: tl.constexpr, GROUP: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """The same of rows whose last block is `v`, and the others what `blocks` says."""
    top, total = joined(v, top, total, GROUP, VECTOR)
    most = tl.max(top, 1)
    sums = tl.sum(product(total, exp(top - finite(most)[:, None])), 1)
    if SMOOTH:
        shares += shared(tl.where(inside, v, 0.0), GROUP, VECTOR)
    return most, sums, tl.sum(shares, 1)
