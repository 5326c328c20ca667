"""Which tile comes when, and the warp that loads it."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def tile_of(t, sizes, CAUSAL: gl.constexpr):
    """(query tile, batch * heads + head) of the t-th work item.

    Causal: the longest tiles first, all heads of a section (as many as the L2 cache holds) abreast.
    """
    if CAUSAL:
        part = t // (sizes.section * sizes.n_tiles)
        rest = t - part * sizes.section * sizes.n_tiles
        abreast = gl.minimum(sizes.section, sizes.n_heads_all - part * sizes.section)
        tile = sizes.n_tiles - 1 - rest // abreast
        head = part * sizes.section + rest % abreast
    else:
        head = t // sizes.n_tiles
        tile = t - head * sizes.n_tiles
    return tile, head


@gluon.jit
def block_range(row, sizes, BLOCK_M: gl.constexpr, N: gl.constexpr, CAUSAL: gl.constexpr):
    """(key blocks of the tile that begins at `row`, at least one; how many of them need no mask).

    The block with the last key that the first row sees counts as masked even where it ends there:
    so every row that sees a key has seen one when the masked blocks are done.
    """
    n_blocks = gl.cdiv(sizes.seqlen_k, N)
    n_clear = n_blocks - 1
    if CAUSAL:
        last = row + (sizes.seqlen_k - sizes.seqlen_q)  # the last key the tile's first row sees
        n_blocks = gl.minimum(n_blocks, gl.cdiv(gl.maximum(last + BLOCK_M, 0), N))
        n_clear = gl.minimum(n_clear, gl.maximum(last, 0) // N)
    n_blocks = gl.maximum(n_blocks, 1)
    return n_blocks, gl.minimum(n_clear, n_blocks - 1)


@gluon.jit
def producer(q_desc, k_desc, v_desc, q, k, v, sizes, kind):
    """Loads Q of every tile, then K and V of its blocks, as soon as their places are free."""
    M: gl.constexpr = q.memory.shape[3]
    N: gl.constexpr = k.memory.shape[3]
    step = 0
    done = 0
    for t in range(gl.program_id(0), sizes.n_tiles * sizes.n_heads_all, gl.num_programs(0)):
        tile, head_all = tile_of(t, sizes, kind.CAUSAL)
        batch = head_all // sizes.n_heads
        head = head_all - batch * sizes.n_heads
        kv_head = head // sizes.kv_group
        row = tile * kind.BLOCK_M
        n_blocks, _ = block_range(row, sizes, kind.BLOCK_M, N, kind.CAUSAL)
        for g in gl.static_range(q.count):
            q.fill(q_desc, [batch, head, row + g * M, 0], g, done)
        for i in range(n_blocks):
            coordinates = [batch, kv_head, (n_blocks - 1 - i) * N, 0]
            k.fill(k_desc, coordinates, step % k.count, step // k.count)
            v.fill(v_desc, coordinates, step % v.count, step // v.count)
            step += 1
        done += 1
