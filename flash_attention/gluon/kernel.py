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
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from .groups import consumer
from .loader import producer
from .parts import Kind, Ring, Sizes, barriers

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
    q_s = gl.allocate_shared_memory(q_desc.dtype, [G] + q_desc.block_shape, q_desc.layout)
    o_s = gl.allocate_shared_memory(o_desc.dtype, [G] + o_desc.block_shape, o_desc.layout)
    k_s = gl.allocate_shared_memory(k_desc.dtype, [NB] + k_desc.block_shape, k_desc.layout)
    v_s = gl.allocate_shared_memory(v_desc.dtype, [NB] + v_desc.block_shape, v_desc.layout)
    q = Ring(memory=q_s, full=barriers(G), empty=barriers(G), count=G)
    k = Ring(memory=k_s, full=barriers(NB), empty=barriers(NB), count=NB)
    v = Ring(memory=v_s, full=barriers(NB), empty=barriers(NB), count=NB)
    for g in gl.static_range(G):
        q.start(g, 1)
    for b in gl.static_range(NB):
        k.start(b, G)
        v.start(b, G)
    fence_async_shared()  # the copies signal the barriers
    sizes = Sizes(
        seqlen_q=seqlen_q, seqlen_k=seqlen_k, n_heads=n_heads, kv_group=kv_group, n_tiles=n_tiles,
        n_heads_all=n_heads_all, section=section, scale=scale)  # fmt: skip
    kind = Kind(
        BLOCK_M=BLOCK_M, GROUPS=G, CAUSAL=CAUSAL, PING_PONG=PING_PONG, FENCE=FENCE,
        OPTIMISTIC=OPTIMISTIC)  # fmt: skip
    # Written where it is used: a tuple in a variable would make tensors of its constants.
    gl.warp_specialize(
        [(consumer, (o_desc, o_s, q, k, v, sizes, kind, g)) for g in (0, 1, 2)[:G]]
        + [(producer, (q_desc, k_desc, v_desc, q, k, v, sizes, kind))],
        [GROUP_WARPS, GROUP_WARPS, 1][3 - G:],
        [MMA_REGS, MMA_REGS, 24][3 - G:])  # fmt: skip
