"""Warp-specialised attention for Hopper: one warp loads by TMA, one to three warpgroups multiply.

Every group owns BLOCK_M / NUM_MMA_GROUPS query rows; K and V come through rings of NUM_BUFFERS
blocks. Key blocks are walked from the last to the first, so that the ragged block and the diagonal
come first and the long loop masks nothing. Blocks are 4-D TMA boxes over (batch, heads, seq, d):
what lies behind a sequence's end is read as zero and never written, whatever the strides.
"""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors
# ruff: noqa: N803, SIM108

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .softmax import blend, hold, mask_scores, partial_sums, row_maximum


@gluon.jit
def tile_of(t, n_tiles, n_heads_all, section, CAUSAL: gl.constexpr):
    """(query tile, batch * heads + head) of the t-th work item.

    Causal: the longest tiles first, all heads of a section (as many as the L2 cache holds) abreast.
    """
    if CAUSAL:
        part = t // (section * n_tiles)
        rest = t - part * section * n_tiles
        abreast = gl.minimum(section, n_heads_all - part * section)
        tile = n_tiles - 1 - rest // abreast
        head = part * section + rest % abreast
    else:
        head = t // n_tiles
        tile = t - head * n_tiles
    return tile, head


@gluon.jit
def block_range(row, seqlen_q, seqlen_k, BLOCK_M: gl.constexpr, N: gl.constexpr, CAUSAL: gl.constexpr):
    """(key blocks of the tile that begins at `row`, at least one; how many of them need no mask).

    The block with the last key that the first row sees counts as masked even where it ends there:
    so every row that sees a key has seen one when the masked blocks are done.
    """
    n_blocks = gl.cdiv(seqlen_k, N)
    n_clear = n_blocks - 1
    if CAUSAL:
        last = row + (seqlen_k - seqlen_q)  # the last key that the tile's first row sees
        n_blocks = gl.minimum(n_blocks, gl.cdiv(gl.maximum(last + BLOCK_M, 0), N))
        n_clear = gl.minimum(n_clear, gl.maximum(last, 0) // N)
    n_blocks = gl.maximum(n_blocks, 1)
    return n_blocks, gl.minimum(n_clear, n_blocks - 1)


@gluon.jit
def producer(
    q_desc, k_desc, v_desc, q_s, k_s, v_s, q_full, q_empty, k_full, k_empty, v_full, v_empty,
    seqlen_q, seqlen_k, n_heads, kv_group, n_tiles, n_heads_all, section,
    BLOCK_M: gl.constexpr, N: gl.constexpr, NB: gl.constexpr, G: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """Loads Q of every tile, then K and V of its blocks, as soon as their places are free."""
    M: gl.constexpr = BLOCK_M // G
    step = 0
    done = 0
    for t in range(gl.program_id(0), n_tiles * n_heads_all, gl.num_programs(0)):
        tile, head_all = tile_of(t, n_tiles, n_heads_all, section, CAUSAL)
        batch = head_all // n_heads
        head = head_all - batch * n_heads
        kv_head = head // kv_group
        row = tile * BLOCK_M
        n_blocks, _ = block_range(row, seqlen_q, seqlen_k, BLOCK_M, N, CAUSAL)
        for g in gl.static_range(G):
            mbarrier.wait(q_empty.index(g), (done & 1) ^ 1)
            mbarrier.expect(q_full.index(g), q_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(
                q_desc, [batch, head, row + g * M, 0], q_full.index(g), q_s.index(g))  # fmt: skip
        for i in range(n_blocks):
            key = (n_blocks - 1 - i) * N
            place = step % NB
            free = ((step // NB) & 1) ^ 1
            mbarrier.wait(k_empty.index(place), free)
            mbarrier.expect(k_full.index(place), k_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(
                k_desc, [batch, kv_head, key, 0], k_full.index(place), k_s.index(place))  # fmt: skip
            mbarrier.wait(v_empty.index(place), free)
            mbarrier.expect(v_full.index(place), v_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(
                v_desc, [batch, kv_head, key, 0], v_full.index(place), v_s.index(place))  # fmt: skip
            step += 1
        done += 1


@gluon.jit
def take_turn(GROUP: gl.constexpr, G: gl.constexpr):
    """Waits until the group before has issued its scores. Barriers 9 and up are not Triton's."""
    if G == 2:
        if GROUP == 0:
            asm: gl.constexpr = "bar.sync 9, 256; mov.b32 $0, 0;"
        else:
            asm: gl.constexpr = "bar.sync 10, 256; mov.b32 $0, 0;"
    elif GROUP == 0:
        asm: gl.constexpr = "bar.sync 9, 256; mov.b32 $0, 0;"
    elif GROUP == 1:
        asm: gl.constexpr = "bar.sync 10, 256; mov.b32 $0, 0;"
    else:
        asm: gl.constexpr = "bar.sync 11, 256; mov.b32 $0, 0;"
    gl.inline_asm_elementwise(asm, "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def pass_turn(GROUP: gl.constexpr, G: gl.constexpr):
    """Lets the next group issue."""
    NEXT: gl.constexpr = (GROUP + 1) % G
    if NEXT == 0:
        asm: gl.constexpr = "bar.arrive 9, 256; mov.b32 $0, 0;"
    elif NEXT == 1:
        asm: gl.constexpr = "bar.arrive 10, 256; mov.b32 $0, 0;"
    else:
        asm: gl.constexpr = "bar.arrive 11, 256; mov.b32 $0, 0;"
    gl.inline_asm_elementwise(asm, "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def issue_scores(q, k_s, k_full, step, NB: gl.constexpr, GROUP: gl.constexpr, G: gl.constexpr,
                 TURNS: gl.constexpr):  # fmt: skip
    """Starts S = Q K^T with the K block of `step` once it is there (and it is this group's turn)."""
    M: gl.constexpr = q.shape[0]
    D: gl.constexpr = q.shape[1]
    N: gl.constexpr = k_s.shape[3]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, N, 16])
    place = step % NB
    mbarrier.wait(k_full.index(place), (step // NB) & 1)
    if TURNS:
        take_turn(GROUP, G)
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


@gluon.jit
def tile_pipelined(
    q, k_s, v_s, k_full, k_empty, v_full, v_empty, step, row, n_blocks, n_clear,
    seqlen_q, seqlen_k, scale, NB: gl.constexpr, GROUP: gl.constexpr, G: gl.constexpr,
    CAUSAL: gl.constexpr, FENCE: gl.constexpr,
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
    tma.async_copy_shared_to_global(o_desc, [batch, head, row, 0], o_s)


@gluon.jit
def consumer(
    o_desc, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full, v_empty,
    seqlen_q, seqlen_k, n_heads, n_tiles, n_heads_all, section, scale,
    BLOCK_M: gl.constexpr, G: gl.constexpr, GROUP: gl.constexpr, CAUSAL: gl.constexpr,
    PING_PONG: gl.constexpr, FENCE: gl.constexpr,
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
                seqlen_q, seqlen_k, scale, NB, GROUP, G, CAUSAL, FENCE)  # fmt: skip
        else:
            acc, sums = tile_cooperative(
                q, k_s, v_s, k_full, k_empty, v_full, v_empty, step, row, n_blocks, n_clear,
                seqlen_q, seqlen_k, scale, NB, CAUSAL)  # fmt: skip
        mbarrier.arrive(q_empty.index(GROUP), count=1)
        store_tile(o_desc, o_s.index(GROUP), acc, sums, batch, head_all - batch * n_heads, row)
        step += n_blocks
        done += 1
    if PING_PONG and G > 1 and GROUP == 0:
        take_turn(GROUP, G)  # the last group's last word: no barrier is left half full
    tma.store_wait(0)


@gluon.jit(do_not_specialize=[
    "seqlen_q", "seqlen_k", "n_heads", "kv_group", "n_tiles", "n_heads_all", "section"])  # fmt: skip
def attention(
    q_desc, k_desc, v_desc, o_desc, seqlen_q, seqlen_k, n_heads, kv_group, n_tiles, n_heads_all,
    section, scale,
    BLOCK_M: gl.constexpr, NUM_BUFFERS: gl.constexpr, NUM_MMA_GROUPS: gl.constexpr,
    GROUP_WARPS: gl.constexpr, MMA_REGS: gl.constexpr, CAUSAL: gl.constexpr,
    PING_PONG: gl.constexpr, FENCE: gl.constexpr,
):  # fmt: skip
    """O = softmax(scale q k^T) v. Descriptors are (batch, heads, seq, d); `scale` has log2(e) in it.

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
    # A tuple of partitions in a variable would make tensors of the constants: hence three calls.
    if G == 1:
        gl.warp_specialize([
            (consumer, (o_desc, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full,
                        v_empty, seqlen_q, seqlen_k, n_heads, n_tiles, n_heads_all, section, scale,
                        BLOCK_M, G, 0, CAUSAL, PING_PONG, FENCE)),
            (producer, (q_desc, k_desc, v_desc, q_s, k_s, v_s, q_full, q_empty, k_full, k_empty,
                        v_full, v_empty, seqlen_q, seqlen_k, n_heads, kv_group, n_tiles,
                        n_heads_all, section, BLOCK_M, N, NB, G, CAUSAL)),
        ], [1], [24])  # fmt: skip
    elif G == 2:
        gl.warp_specialize([
            (consumer, (o_desc, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full,
                        v_empty, seqlen_q, seqlen_k, n_heads, n_tiles, n_heads_all, section, scale,
                        BLOCK_M, G, 0, CAUSAL, PING_PONG, FENCE)),
            (consumer, (o_desc, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full,
                        v_empty, seqlen_q, seqlen_k, n_heads, n_tiles, n_heads_all, section, scale,
                        BLOCK_M, G, 1, CAUSAL, PING_PONG, FENCE)),
            (producer, (q_desc, k_desc, v_desc, q_s, k_s, v_s, q_full, q_empty, k_full, k_empty,
                        v_full, v_empty, seqlen_q, seqlen_k, n_heads, kv_group, n_tiles,
                        n_heads_all, section, BLOCK_M, N, NB, G, CAUSAL)),
        ], [GROUP_WARPS, 1], [MMA_REGS, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (consumer, (o_desc, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full,
                        v_empty, seqlen_q, seqlen_k, n_heads, n_tiles, n_heads_all, section, scale,
                        BLOCK_M, G, 0, CAUSAL, PING_PONG, FENCE)),
            (consumer, (o_desc, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full,
                        v_empty, seqlen_q, seqlen_k, n_heads, n_tiles, n_heads_all, section, scale,
                        BLOCK_M, G, 1, CAUSAL, PING_PONG, FENCE)),
            (consumer, (o_desc, q_s, k_s, v_s, o_s, q_full, q_empty, k_full, k_empty, v_full,
                        v_empty, seqlen_q, seqlen_k, n_heads, n_tiles, n_heads_all, section, scale,
                        BLOCK_M, G, 2, CAUSAL, PING_PONG, FENCE)),
            (producer, (q_desc, k_desc, v_desc, q_s, k_s, v_s, q_full, q_empty, k_full, k_empty,
                        v_full, v_empty, seqlen_q, seqlen_k, n_heads, kv_group, n_tiles,
                        n_heads_all, section, BLOCK_M, N, NB, G, CAUSAL)),
        ], [GROUP_WARPS, GROUP_WARPS, 1], [MMA_REGS, MMA_REGS, 24])  # fmt: skip
