"""What a group does with its rows of a tile, and with one tile after the other."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
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
from .parts import Tile
from .softmax import limits, partial_sums
from .tma import async_store


@gluon.jit
def tile_pipelined(tile):
    """(O, its row sums) of one tile, not divided yet."""
    M: gl.constexpr = tile.q.shape[0]
    D: gl.constexpr = tile.q.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, D, 16])
    weights, m = first_block(tile)
    sums = partial_sums(weights)
    p = as_operand(weights, tile.v)
    acc = gl.zeros([M, D], gl.float32, layout)
    if tile.kind.CAUSAL:
        for i in range(1, tile.n_blocks - tile.n_clear):
            p, acc, m, sums = pipelined_block(tile, p, acc, m, sums, i, True)
    if tile.kind.OPTIMISTIC:
        limit = limits(sums)
        for i in range(tile.n_blocks - tile.n_clear, tile.n_blocks):
            p, acc, m, sums, limit = optimistic_block(tile, p, acc, m, sums, limit, i)
    else:
        for i in range(tile.n_blocks - tile.n_clear, tile.n_blocks):
            p, acc, m, sums = pipelined_block(tile, p, acc, m, sums, i, False)
    last = tile.step + tile.n_blocks - 1
    acc = issue_output(tile, p, acc, last)
    acc, p = warpgroup_mma_wait(0, deps=[acc, p])
    tile.v.release(last % tile.v.count)
    return acc, sums


@gluon.jit
def tile_cooperative(tile):
    """(O, its row sums) of one tile, not divided yet."""
    M: gl.constexpr = tile.q.shape[0]
    D: gl.constexpr = tile.q.shape[1]
    N: gl.constexpr = tile.k.memory.shape[3]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, D, 16])
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, N, 16])
    acc = gl.zeros([M, D], gl.float32, layout)
    sums = partial_sums(gl.zeros([M, N], gl.float32, s_layout))
    m = gl.full([M], -float("inf"), gl.float32, gl.SliceLayout(1, s_layout))
    for i in range(0, tile.n_blocks - tile.n_clear):
        acc, m, sums = cooperative_block(tile, acc, m, sums, i, True)
    for i in range(tile.n_blocks - tile.n_clear, tile.n_blocks):
        acc, m, sums = cooperative_block(tile, acc, m, sums, i, False)
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
def consumer(o_desc, o_s, q, k, v, sizes, kind, GROUP: gl.constexpr):
    """The rows of one group, tile after tile."""
    GROUPS: gl.constexpr = kind.GROUPS
    M: gl.constexpr = q.memory.shape[3]
    N: gl.constexpr = k.memory.shape[3]
    step = 0
    done = 0
    if kind.PING_PONG and GROUPS > 1 and GROUP == GROUPS - 1:
        pass_turn(GROUP, GROUPS)  # group 0 begins
    for t in range(gl.program_id(0), sizes.n_tiles * sizes.n_heads_all, gl.num_programs(0)):
        index, head_all = tile_of(t, sizes, kind.CAUSAL)
        batch = head_all // sizes.n_heads
        first = index * kind.BLOCK_M
        row = first + GROUP * M
        n_blocks, n_clear = block_range(first, sizes, kind.BLOCK_M, N, kind.CAUSAL)
        q.wait(GROUP, done)
        tile = Tile(
            q=q.matrix(GROUP), k=k, v=v, step=step, row=row, n_blocks=n_blocks, n_clear=n_clear,
            sizes=sizes, kind=kind, GROUP=GROUP)  # fmt: skip
        if kind.PING_PONG:
            acc, sums = tile_pipelined(tile)
        else:
            acc, sums = tile_cooperative(tile)
        q.release(GROUP)
        head = head_all - batch * sizes.n_heads
        store_tile(o_desc, o_s.index(GROUP), acc, sums, batch, head, row)
        step += n_blocks
        done += 1
    if kind.PING_PONG and GROUPS > 1 and GROUP == 0:
        take_turn(GROUP)  # the last group's last word: no barrier is left half full
    tma.store_wait(0)
