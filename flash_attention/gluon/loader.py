"""Which tile comes when, and the warp that loads it."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from .tma import async_load


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
def block_range(
    row, seqlen_q, seqlen_k, BLOCK_M: gl.constexpr, N: gl.constexpr, CAUSAL: gl.constexpr
):
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
            async_load(q_desc, [batch, head, row + g * M, 0], q_full.index(g), q_s.index(g))
        for i in range(n_blocks):
            key = (n_blocks - 1 - i) * N
            place = step % NB
            free = ((step // NB) & 1) ^ 1
            mbarrier.wait(k_empty.index(place), free)
            mbarrier.expect(k_full.index(place), k_desc.block_type.nbytes)
            coordinates = [batch, kv_head, key, 0]
            async_load(k_desc, coordinates, k_full.index(place), k_s.index(place))
            mbarrier.wait(v_empty.index(place), free)
            mbarrier.expect(v_full.index(place), v_desc.block_type.nbytes)
            async_load(v_desc, coordinates, v_full.index(place), v_s.index(place))
            step += 1
        done += 1
