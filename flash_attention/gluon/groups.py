"""What a group does with its rows of a tile, and with one tile after the other."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma_wait,
)

from .blocks import (
    as_operand,
    cooperative_block,
    first_block,
    issue_output,
    optimistic_block,
    pass_turn,
    pipelined_block,
    scale_rows,
    take_turn,
)
from .loader import block_range, tile_of
from .softmax import partial_sums
from .tma import async_store


@gluon.jit
def tile_pipelined(
    q, k_s, v_s, k_full, k_empty, v_full, v_empty, step, row, n_blocks, n_clear,
    seqlen_q, seqlen_k, scale, NB: gl.constexpr, GROUP: gl.constexpr, G: gl.constexpr,
    CAUSAL: gl.constexpr, FENCE: gl.constexpr, OPTIMISTIC: gl.constexpr,
):  # fmt: skip
    """(O, its row sums) of one tile, not divided yet."""
    N: gl.constexpr = k_s.shape[3]
    D: gl.constexpr = k_s.shape[4]
    TURNS: gl.constexpr = G > 1
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, D, 16])
    weights, m = first_block(q, k_s, k_full, k_empty, step, row, (n_blocks - 1) * N, seqlen_q,
                             seqlen_k, scale, NB, GROUP, G, TURNS, CAUSAL)  # fmt: skip
    sums = partial_sums(weights)
    p = as_operand(weights, v_s.dtype, D)
    M: gl.constexpr = q.shape[0]
    acc = gl.zeros([M, D], gl.float32, layout)
    if CAUSAL:
        for i in range(1, n_blocks - n_clear):
            p, acc, m, sums = pipelined_block(
                q, k_s, v_s, k_full, k_empty, v_full, v_empty, p, acc, m, sums, step + i, row,
                (n_blocks - 1 - i) * N, seqlen_q, seqlen_k, scale, NB, GROUP, G, TURNS, True,
                CAUSAL, FENCE)  # fmt: skip
    for i in range(n_blocks - n_clear, n_blocks):
        if OPTIMISTIC:
            p, acc, m, sums = optimistic_block(
                q, k_s, v_s, k_full, k_empty, v_full, v_empty, p, acc, m, sums, step + i, scale,
                NB, GROUP, G, TURNS)  # fmt: skip
        else:
            p, acc, m, sums = pipelined_block(
                q, k_s, v_s, k_full, k_empty, v_full, v_empty, p, acc, m, sums, step + i, row,
                (n_blocks - 1 - i) * N, seqlen_q, seqlen_k, scale, NB, GROUP, G, TURNS, False,
                CAUSAL, FENCE)  # fmt: skip
    last = step + n_blocks - 1
    acc = issue_output(p, v_s, v_full, acc, last, NB)
    acc, p = warpgroup_mma_wait(0, deps=[acc, p])
    mbarrier.arrive(v_empty.index(last % NB), count=1)
    return acc, sums


@gluon.jit
def tile_cooperative(
    q, k_s, v_s, k_full, k_empty, v_full, v_empty, step, row, n_blocks, n_clear,
    seqlen_q, seqlen_k, scale, NB: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """(O, its row sums) of one tile, not divided yet."""
    N: gl.constexpr = k_s.shape[3]
    D: gl.constexpr = k_s.shape[4]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, D, 16])
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, N, 16])
    M: gl.constexpr = q.shape[0]
    acc = gl.zeros([M, D], gl.float32, layout)
    sums = partial_sums(gl.zeros([M, N], gl.float32, s_layout))
    m = gl.full([M], -float("inf"), gl.float32, gl.SliceLayout(1, s_layout))
    for i in range(0, n_blocks - n_clear):
        acc, m, sums = cooperative_block(
            q, k_s, v_s, k_full, k_empty, v_full, v_empty, acc, m, sums, step + i, row,
            (n_blocks - 1 - i) * N, seqlen_q, seqlen_k, scale, NB, True, CAUSAL)  # fmt: skip
    for i in range(n_blocks - n_clear, n_blocks):
        acc, m, sums = cooperative_block(
            q, k_s, v_s, k_full, k_empty, v_full, v_empty, acc, m, sums, step + i, row,
            (n_blocks - 1 - i) * N, seqlen_q, seqlen_k, scale, NB, False, CAUSAL)  # fmt: skip
    return acc, sums


@gluon.jit
def store_tile(o_desc, o_s, acc, sums, batch, head, row):
    """Divides by the sums and stores; a row that saw no key is 0."""
    total = gl.sum(sums, 1)
    factor = gl.where(total > 0.0, 1.0 / total, 0.0)
    o = scale_rows(acc, factor).to(o_s.dtype)
    tma.store_wait(0)  # of the tile before
    o_s.reshape([o_s.shape[2], o_s.shape[3]]).store(o)
    fence_async_shared()
    async_store(o_desc, [batch, head, row, 0], o_s)


@gluon.jit
def consumer(
    o_desc, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full, v_empty,
    seqlen_q, seqlen_k, n_heads, n_tiles, n_heads_all, section, scale,
    BLOCK_M: gl.constexpr, G: gl.constexpr, GROUP: gl.constexpr, CAUSAL: gl.constexpr,
    PING_PONG: gl.constexpr, FENCE: gl.constexpr, OPTIMISTIC: gl.constexpr,
):  # fmt: skip
    """The rows of one group, tile after tile."""
    NB: gl.constexpr = k_s.shape[0]
    N: gl.constexpr = k_s.shape[3]
    D: gl.constexpr = k_s.shape[4]
    M: gl.constexpr = BLOCK_M // G
    step = 0
    done = 0
    if PING_PONG and G > 1 and GROUP == G - 1:
        pass_turn(GROUP, G)  # group 0 begins
    for t in range(gl.program_id(0), n_tiles * n_heads_all, gl.num_programs(0)):
        tile, head_all = tile_of(t, n_tiles, n_heads_all, section, CAUSAL)
        batch = head_all // n_heads
        first = tile * BLOCK_M
        row = first + GROUP * M
        n_blocks, n_clear = block_range(first, seqlen_q, seqlen_k, BLOCK_M, N, CAUSAL)
        mbarrier.wait(q_full.index(GROUP), done & 1)
        q = q_s.index(GROUP).reshape([M, D])
        if PING_PONG:
            acc, sums = tile_pipelined(
                q, k_s, v_s, k_full, k_empty, v_full, v_empty, step, row, n_blocks, n_clear,
                seqlen_q, seqlen_k, scale, NB, GROUP, G, CAUSAL, FENCE,
                OPTIMISTIC)  # fmt: skip
        else:
            acc, sums = tile_cooperative(
                q, k_s, v_s, k_full, k_empty, v_full, v_empty, step, row, n_blocks, n_clear,
                seqlen_q, seqlen_k, scale, NB, CAUSAL)  # fmt: skip
        mbarrier.arrive(q_empty.index(GROUP), count=1)
        store_tile(o_desc, o_s.index(GROUP), acc, sums, batch, head_all - batch * n_heads, row)
        step += n_blocks
        done += 1
    if PING_PONG and G > 1 and GROUP == 0:
        take_turn(GROUP)  # the last group's last word: no barrier is left half full
    tma.store_wait(0)
