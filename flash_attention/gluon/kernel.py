"""Warp-specialised attention for Hopper: one warp loads by TMA, one to three warpgroups multiply.

Every group owns BLOCK_M / NUM_MMA_GROUPS query rows; K and V come through rings of NUM_BUFFERS
blocks. Key blocks are walked from the last to the first, so that the ragged block and the diagonal
come first and the long loop masks nothing. Blocks are 4-D TMA boxes over (batch, heads, seq, d):
what lies behind a sequence's end is read as zero and never written, whatever the strides.
"""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from .groups import consumer
from .loader import producer

SIZES = ["seqlen_q", "seqlen_k", "n_heads", "kv_group", "n_tiles", "n_heads_all", "section"]


@gluon.jit(do_not_specialize=SIZES)
def attention(
    q_desc, k_desc, v_desc, o_desc, seqlen_q, seqlen_k, n_heads, kv_group, n_tiles, n_heads_all,
    section, scale,
    BLOCK_M: gl.constexpr, NUM_BUFFERS: gl.constexpr, NUM_MMA_GROUPS: gl.constexpr,
    GROUP_WARPS: gl.constexpr, MMA_REGS: gl.constexpr, CAUSAL: gl.constexpr,
    PING_PONG: gl.constexpr, FENCE: gl.constexpr, OPTIMISTIC: gl.constexpr,
):  # fmt: skip
    """O = softmax(scale q k^T) v. Descriptors are (batch, heads, seq, d); `scale` times log2(e).

    The grid may have any number of programs: each takes every num_programs-th tile.
    """
    G: gl.constexpr = NUM_MMA_GROUPS
    NB: gl.constexpr = NUM_BUFFERS
    N: gl.constexpr = k_desc.block_shape[2]
    q_s = gl.allocate_shared_memory(q_desc.dtype, [G] + q_desc.block_shape, q_desc.layout)
    o_s = gl.allocate_shared_memory(o_desc.dtype, [G] + o_desc.block_shape, o_desc.layout)
    k_s = gl.allocate_shared_memory(k_desc.dtype, [NB] + k_desc.block_shape, k_desc.layout)
    v_s = gl.allocate_shared_memory(v_desc.dtype, [NB] + v_desc.block_shape, v_desc.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [G, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [G, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [NB, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [NB, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [NB, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [NB, 1], mbarrier.MBarrierLayout())
    for g in gl.static_range(G):
        mbarrier.init(q_full.index(g), count=1)
        mbarrier.init(q_empty.index(g), count=1)
    for b in gl.static_range(NB):
        mbarrier.init(k_full.index(b), count=1)
        mbarrier.init(k_empty.index(b), count=G)
        mbarrier.init(v_full.index(b), count=1)
        mbarrier.init(v_empty.index(b), count=G)
    fence_async_shared()  # the copies signal the barriers
    # A tuple of partitions in a variable would make tensors of the constants: hence three calls.
    if G == 1:
        gl.warp_specialize([
            (consumer, (o_desc, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full,
                        v_empty, seqlen_q, seqlen_k, n_heads, n_tiles, n_heads_all, section, scale,
                        BLOCK_M, G, 0, CAUSAL, PING_PONG, FENCE, OPTIMISTIC)),
            (producer, (q_desc, k_desc, v_desc, q_s, k_s, v_s, q_full, q_empty, k_full, k_empty,
                        v_full, v_empty, seqlen_q, seqlen_k, n_heads, kv_group, n_tiles,
                        n_heads_all, section, BLOCK_M, N, NB, G, CAUSAL)),
        ], [1], [24])  # fmt: skip
    elif G == 2:
        gl.warp_specialize([
            (consumer, (o_desc, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full,
                        v_empty, seqlen_q, seqlen_k, n_heads, n_tiles, n_heads_all, section, scale,
                        BLOCK_M, G, 0, CAUSAL, PING_PONG, FENCE, OPTIMISTIC)),
            (consumer, (o_desc, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full,
                        v_empty, seqlen_q, seqlen_k, n_heads, n_tiles, n_heads_all, section, scale,
                        BLOCK_M, G, 1, CAUSAL, PING_PONG, FENCE, OPTIMISTIC)),
            (producer, (q_desc, k_desc, v_desc, q_s, k_s, v_s, q_full, q_empty, k_full, k_empty,
                        v_full, v_empty, seqlen_q, seqlen_k, n_heads, kv_group, n_tiles,
                        n_heads_all, section, BLOCK_M, N, NB, G, CAUSAL)),
        ], [GROUP_WARPS, 1], [MMA_REGS, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (consumer, (o_desc, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full,
                        v_empty, seqlen_q, seqlen_k, n_heads, n_tiles, n_heads_all, section, scale,
                        BLOCK_M, G, 0, CAUSAL, PING_PONG, FENCE, OPTIMISTIC)),
            (consumer, (o_desc, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full,
                        v_empty, seqlen_q, seqlen_k, n_heads, n_tiles, n_heads_all, section, scale,
                        BLOCK_M, G, 1, CAUSAL, PING_PONG, FENCE, OPTIMISTIC)),
            (consumer, (o_desc, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full,
                        v_empty, seqlen_q, seqlen_k, n_heads, n_tiles, n_heads_all, section, scale,
                        BLOCK_M, G, 2, CAUSAL, PING_PONG, FENCE, OPTIMISTIC)),
            (producer, (q_desc, k_desc, v_desc, q_s, k_s, v_s, q_full, q_empty, k_full, k_empty,
                        v_full, v_empty, seqlen_q, seqlen_k, n_heads, kv_group, n_tiles,
                        n_heads_all, section, BLOCK_M, N, NB, G, CAUSAL)),
        ], [GROUP_WARPS, GROUP_WARPS, 1], [MMA_REGS, MMA_REGS, 24])  # fmt: skip
