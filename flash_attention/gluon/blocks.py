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

from .softmax import any_above, blend, hold, mask_scores, partial_sums, row_maximum, run_asm


@gluon.jit
def take_turn(GROUP: gl.constexpr):
    """Waits until the group before has issued its scores. Barriers 9 and up are not Triton's."""
    if GROUP == 0:
        run_asm("bar.sync 9, 256;")
    elif GROUP == 1:
        run_asm("bar.sync 10, 256;")
    else:
        run_asm("bar.sync 11, 256;")


@gluon.jit
def pass_turn(GROUP: gl.constexpr, G: gl.constexpr):
    """Lets the next group issue."""
    NEXT: gl.constexpr = (GROUP + 1) % G
    if NEXT == 0:
        run_asm("bar.arrive 9, 256;")
    elif NEXT == 1:
        run_asm("bar.arrive 10, 256;")
    else:
        run_asm("bar.arrive 11, 256;")


@gluon.jit
def issue_scores(q, k_s, k_full, step, NB: gl.constexpr, GROUP: gl.constexpr, G: gl.constexpr,
                 TURNS: gl.constexpr):  # fmt: skip
    """Starts S = Q K^T with the K block of `step`, once it is there and it is this group's turn."""
    M: gl.constexpr = q.shape[0]
    D: gl.constexpr = q.shape[1]
    N: gl.constexpr = k_s.shape[3]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, N, 16])
    place = step % NB
    mbarrier.wait(k_full.index(place), (step // NB) & 1)
    if TURNS:
        take_turn(GROUP)
    k = k_s.index(place).reshape([N, D]).permute([1, 0])
    s = warpgroup_mma(q, k, gl.zeros([M, N], gl.float32, layout), use_acc=False, is_async=True)
    if TURNS:
        pass_turn(GROUP, G)
    return s


@gluon.jit
def issue_output(p, v_s, v_full, acc, step, NB: gl.constexpr):
    """Starts O += P V with the V block of `step` once it is there."""
    N: gl.constexpr = v_s.shape[3]
    D: gl.constexpr = v_s.shape[4]
    place = step % NB
    mbarrier.wait(v_full.index(place), (step // NB) & 1)
    return warpgroup_mma(p, v_s.index(place).reshape([N, D]), acc, is_async=True)


@gluon.jit
def as_operand(p, dtype: gl.constexpr, D: gl.constexpr):
    """The weights as the left operand of O += P V, in registers."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, D, 16])
    return gl.convert_layout(p.to(dtype), gl.DotOperandLayout(0, layout, 2), assert_trivial=True)


@gluon.jit
def scale_rows(acc, factor):
    return acc * gl.convert_layout(
        factor, gl.SliceLayout(1, acc.type.layout), assert_trivial=True)[:, None]  # fmt: skip


@gluon.jit
def first_block(q, k_s, k_full, k_empty, step, row, key, seqlen_q, seqlen_k, scale,
                NB: gl.constexpr, GROUP: gl.constexpr, G: gl.constexpr, TURNS: gl.constexpr,
                CAUSAL: gl.constexpr):  # fmt: skip
    """Scores and weights of a tile's first (last) key block: nothing to rescale yet."""
    s = issue_scores(q, k_s, k_full, step, NB, GROUP, G, TURNS)
    s = warpgroup_mma_wait(0, deps=[s])
    mbarrier.arrive(k_empty.index(step % NB), count=1)
    s = mask_scores(s, row, key, seqlen_q, seqlen_k, CAUSAL)
    M: gl.constexpr = q.shape[0]
    none = gl.full([M], -float("inf"), gl.float32, gl.SliceLayout(1, s.type.layout))
    m, reference = row_maximum(s, scale, none, True)
    p = gl.exp2(s * scale - reference[:, None])
    return p, m


@gluon.jit
def pipelined_block(
    q, k_s, v_s, k_full, k_empty, v_full, v_empty, p, acc, m, sums, step, row, key,
    seqlen_q, seqlen_k, scale,
    NB: gl.constexpr, GROUP: gl.constexpr, G: gl.constexpr, TURNS: gl.constexpr,
    MASKED: gl.constexpr, CAUSAL: gl.constexpr, FENCE: gl.constexpr,
):  # fmt: skip
    """Scores and weights of block `step` while the tensor cores add the block before to O."""
    s = issue_scores(q, k_s, k_full, step, NB, GROUP, G, TURNS)
    acc = issue_output(p, v_s, v_full, acc, step - 1, NB)
    s = warpgroup_mma_wait(1, deps=[s])
    if FENCE == "warp":
        hold("warp")
    mbarrier.arrive(k_empty.index(step % NB), count=1)
    if MASKED:
        s = mask_scores(s, row, key, seqlen_q, seqlen_k, CAUSAL)
    m_new, reference = row_maximum(s, scale, m, MASKED)
    weights = gl.exp2(s * scale - reference[:, None])
    alpha = gl.exp2(m - reference)
    sums = blend(sums, alpha, partial_sums(weights))
    if FENCE != "warp":
        hold(FENCE)
    acc, p = warpgroup_mma_wait(0, deps=[acc, p])
    mbarrier.arrive(v_empty.index((step - 1) % NB), count=1)
    acc = scale_rows(acc, alpha)
    return as_operand(weights, v_s.dtype, v_s.shape[4]), acc, m_new, sums


@gluon.jit
def optimistic_block(
    q, k_s, v_s, k_full, k_empty, v_full, v_empty, p, acc, m, sums, step, scale,
    NB: gl.constexpr, GROUP: gl.constexpr, G: gl.constexpr, TURNS: gl.constexpr,
):  # fmt: skip
    """As pipelined_block for a block without a mask, but with the maximum of the blocks before.

    Any reference gives the same softmax while the weights stay in range. Their sums are needed
    anyway: where one is too large, the scores are multiplied again and their maximum is taken.
    """
    N: gl.constexpr = k_s.shape[3]
    D: gl.constexpr = k_s.shape[4]
    M: gl.constexpr = q.shape[0]
    s = issue_scores(q, k_s, k_full, step, NB, GROUP, G, TURNS)
    acc = issue_output(p, v_s, v_full, acc, step - 1, NB)
    s = warpgroup_mma_wait(1, deps=[s])
    layout: gl.constexpr = s.type.layout
    weights = gl.exp2(s * scale - m[:, None])
    part = partial_sums(weights)
    again = any_above(part, 32768.0, GROUP)
    mbarrier.arrive(k_empty.index(step % NB), count=1, pred=again == 0)
    acc, p = warpgroup_mma_wait(0, deps=[acc, p])
    mbarrier.arrive(v_empty.index((step - 1) % NB), count=1)
    p = as_operand(weights, v_s.dtype, D)
    if again != 0:
        k = k_s.index(step % NB).reshape([N, D]).permute([1, 0])
        s = warpgroup_mma(q, k, gl.zeros([M, N], gl.float32, layout), use_acc=False)
        mbarrier.arrive(k_empty.index(step % NB), count=1)
        m_new, _ = row_maximum(s, scale, m, False)
        weights = gl.exp2(s * scale - m_new[:, None])
        alpha = gl.exp2(m - m_new)
        sums = blend(sums, alpha, partial_sums(weights))
        acc = scale_rows(acc, alpha)
        p = as_operand(weights, v_s.dtype, D)
        m = m_new
    else:
        sums = sums + part
    return p, acc, m, sums


@gluon.jit
def cooperative_block(
    q, k_s, v_s, k_full, k_empty, v_full, v_empty, acc, m, sums, step, row, key,
    seqlen_q, seqlen_k, scale, NB: gl.constexpr, MASKED: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """One block after the other: scores, weights, output. Other groups fill the gaps."""
    s = issue_scores(q, k_s, k_full, step, NB, 0, 1, False)
    s = warpgroup_mma_wait(0, deps=[s])
    mbarrier.arrive(k_empty.index(step % NB), count=1)
    if MASKED:
        s = mask_scores(s, row, key, seqlen_q, seqlen_k, CAUSAL)
    m_new, reference = row_maximum(s, scale, m, MASKED)
    weights = gl.exp2(s * scale - reference[:, None])
    alpha = gl.exp2(m - reference)
    sums = blend(sums, alpha, partial_sums(weights))
    acc = scale_rows(acc, alpha)
    p = as_operand(weights, v_s.dtype, v_s.shape[4])
    acc = issue_output(p, v_s, v_full, acc, step, NB)
    acc, p = warpgroup_mma_wait(0, deps=[acc, p])
    mbarrier.arrive(v_empty.index(step % NB), count=1)
    return acc, m_new, sums
