"""What a group does with one key block: scores, weights, output."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .softmax import (
    any_above,
    blend,
    hold,
    mask_scores,
    partial_sums,
    raised_limits,
    row_maximum,
    run_asm,
)


@gluon.jit
def take_turn(GROUP: gl.constexpr):
    """Waits until the group before has issued its scores. Barriers 9 and up are not Triton's."""
    run_asm(("bar.sync 9, 256;", "bar.sync 10, 256;", "bar.sync 11, 256;")[GROUP])


@gluon.jit
def pass_turn(GROUP: gl.constexpr, G: gl.constexpr):
    """Lets the next group issue."""
    NEXT: gl.constexpr = (GROUP + 1) % G
    run_asm(("bar.arrive 9, 256;", "bar.arrive 10, 256;", "bar.arrive 11, 256;")[NEXT])


@gluon.jit
def issue_scores(tile, step):
    """Starts S = Q K^T with the K block of `step`, once it is there and it is this group's turn."""
    M: gl.constexpr = tile.q.shape[0]
    N: gl.constexpr = tile.k.memory.shape[3]
    TURNS: gl.constexpr = tile.kind.PING_PONG and tile.kind.GROUPS > 1
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, N, 16])
    place = step % tile.k.count
    tile.k.wait(place, step // tile.k.count)
    if TURNS:
        take_turn(tile.GROUP)
    k = tile.k.matrix(place).permute([1, 0])
    s = warpgroup_mma(
        tile.q, k, gl.zeros([M, N], gl.float32, layout), use_acc=False, is_async=True)  # fmt: skip
    if TURNS:
        pass_turn(tile.GROUP, tile.kind.GROUPS)
    return s


@gluon.jit
def issue_output(tile, p, acc, step):
    """Starts O += P V with the V block of `step` once it is there."""
    place = step % tile.v.count
    tile.v.wait(place, step // tile.v.count)
    return warpgroup_mma(p, tile.v.matrix(place), acc, is_async=True)


@gluon.jit
def as_operand(p, v):
    """The weights as the left operand of O += P V, in registers; `v` is the ring of V."""
    D: gl.constexpr = v.memory.shape[4]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, D, 16])
    return gl.convert_layout(
        p.to(v.memory.dtype), gl.DotOperandLayout(0, layout, 2), assert_trivial=True
    )


@gluon.jit
def scale_rows(acc, factor):
    return acc * gl.convert_layout(
        factor, gl.SliceLayout(1, acc.type.layout), assert_trivial=True)[:, None]  # fmt: skip


@gluon.jit
def first_block(tile):
    """Scores and weights of a tile's first (last) key block: nothing to rescale yet."""
    key = tile.key(0)
    s = issue_scores(tile, tile.step)
    s = warpgroup_mma_wait(0, deps=[s])
    tile.k.release(tile.step % tile.k.count)
    s = mask_scores(s, tile, key)
    M: gl.constexpr = tile.q.shape[0]
    none = gl.full([M], -float("inf"), gl.float32, gl.SliceLayout(1, s.type.layout))
    m, reference = row_maximum(s, tile.sizes.scale, none, True)
    p = gl.exp2(s * tile.sizes.scale - reference[:, None])
    return p, m


@gluon.jit
def pipelined_block(tile, p, acc, m, sums, i, MASKED: gl.constexpr):
    """Scores and weights of block `i` while the tensor cores add the block before to O."""
    FENCE: gl.constexpr = tile.kind.FENCE
    step = tile.step + i
    key = tile.key(i)  # before the scores: later, the same code in another order
    s = issue_scores(tile, step)
    acc = issue_output(tile, p, acc, step - 1)
    s = warpgroup_mma_wait(1, deps=[s])
    if FENCE == "warp":
        hold("warp")
    tile.k.release(step % tile.k.count)
    if MASKED:
        s = mask_scores(s, tile, key)
    m_new, reference = row_maximum(s, tile.sizes.scale, m, MASKED)
    weights = gl.exp2(s * tile.sizes.scale - reference[:, None])
    alpha = gl.exp2(m - reference)
    sums = blend(sums, alpha, partial_sums(weights))
    if FENCE != "warp":
        hold(FENCE)
    acc, p = warpgroup_mma_wait(0, deps=[acc, p])
    tile.v.release((step - 1) % tile.v.count)
    acc = scale_rows(acc, alpha)
    return as_operand(weights, tile.v), acc, m_new, sums


@gluon.jit
def optimistic_block(tile, p, acc, m, sums, limit, i):
    """As pipelined_block for a block without a mask, but with the maximum of the blocks before.

    Any reference gives the same softmax while the weights stay in range. Their sums are needed
    anyway: where one is too large, the scores are multiplied again and their maximum is taken.
    """
    M: gl.constexpr = tile.q.shape[0]
    N: gl.constexpr = tile.k.memory.shape[3]
    scale = tile.sizes.scale
    step = tile.step + i
    place = step % tile.k.count
    s = issue_scores(tile, step)
    acc = issue_output(tile, p, acc, step - 1)
    s = warpgroup_mma_wait(1, deps=[s])
    layout: gl.constexpr = s.type.layout
    weights = gl.exp2(s * scale - m[:, None])
    part = partial_sums(weights)
    again = any_above(part, limit, tile.GROUP)
    mbarrier.arrive(tile.k.empty.index(place), count=1, pred=again == 0)
    acc, p = warpgroup_mma_wait(0, deps=[acc, p])
    tile.v.release((step - 1) % tile.v.count)
    p = as_operand(weights, tile.v)
    if again != 0:
        k = tile.k.matrix(place).permute([1, 0])
        s = warpgroup_mma(tile.q, k, gl.zeros([M, N], gl.float32, layout), use_acc=False)
        tile.k.release(place)
        m_new, _ = row_maximum(s, scale, m, False)
        weights = gl.exp2(s * scale - m_new[:, None])
        alpha = gl.exp2(m - m_new)
        part = partial_sums(weights)
        sums = blend(sums, alpha, part)
        limit = raised_limits(limit, alpha, part)
        acc = scale_rows(acc, alpha)
        p = as_operand(weights, tile.v)
        m = m_new
    else:
        sums = sums + part
    return p, acc, m, sums, limit


@gluon.jit
def cooperative_block(tile, acc, m, sums, i, MASKED: gl.constexpr):
    """One block after the other: scores, weights, output. Other groups fill the gaps."""
    step = tile.step + i
    key = tile.key(i)  # before the scores: later, the same code in another order
    s = issue_scores(tile, step)
    s = warpgroup_mma_wait(0, deps=[s])
    tile.k.release(step % tile.k.count)
    if MASKED:
        s = mask_scores(s, tile, key)
    m_new, reference = row_maximum(s, tile.sizes.scale, m, MASKED)
    weights = gl.exp2(s * tile.sizes.scale - reference[:, None])
    alpha = gl.exp2(m - reference)
    sums = blend(sums, alpha, partial_sums(weights))
    acc = scale_rows(acc, alpha)
    p = as_operand(weights, tile.v)
    acc = issue_output(tile, p, acc, step)
    acc, p = warpgroup_mma_wait(0, deps=[acc, p])
    tile.v.release(step % tile.v.count)
    return acc, m_new, sums
