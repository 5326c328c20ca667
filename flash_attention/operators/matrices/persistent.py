"""A product of matrices for Hopper, warp-specialised (v5): one warp loads by TMA, two warpgroups
multiply, each BLOCK_M / 2 rows of a tile. The grid has as many programs as the GPU has
multiprocessors; each takes every so-many-th tile, and the loads of the next begin while the last is
stored."""

# The functions below are Gluon, not Python: the compiler reads their text.
# mypy: ignore-errors

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from ...triton_kit.aggregates import aggregate

# triton 3.8 renamed the copies; 3.9 only raises an error under the old names.
if hasattr(tma, "async_load"):
    async_load, async_store = tma.async_load, tma.async_store
else:
    async_load, async_store = tma.async_copy_global_to_shared, tma.async_copy_shared_to_global


@aggregate
class Steps:
    """`count` places in shared memory, each for the operands of one step over k (of a, a box for
    each of the groups), and the barriers that say whether they are full or empty; the tiles of the
    output."""

    a: gl.shared_memory_descriptor
    b: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor
    m_tiles: gl.tensor
    n_tiles: gl.tensor
    steps: gl.tensor
    count: gl.constexpr
    groups: gl.constexpr
    A_ROWS: gl.constexpr
    B_ROWS: gl.constexpr
    ROWS: gl.constexpr
    BLOCK_N: gl.constexpr
    BLOCK_K: gl.constexpr
    GROUP_M: gl.constexpr

    @gluon.jit
    def tile(self, t):
        """(row, column) of the t-th tile, in elements: through GROUP_M rows of tiles column by
        column, so that those that run together share operands in the L2 cache."""
        in_group = self.GROUP_M * self.n_tiles
        first = t // in_group * self.GROUP_M
        rest = t % in_group
        height = gl.minimum(self.m_tiles - first, self.GROUP_M)
        row = (first + rest % height) * (self.ROWS * self.groups)
        return row, rest // height * self.BLOCK_N


@gluon.jit
def barriers(COUNT: gl.constexpr):
    return gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())


@gluon.jit
def producer(a_desc, b_desc, s):
    """Loads the operands of every tile, step by step, as soon as a place is free."""
    step = 0
    for t in range(gl.program_id(0), s.m_tiles * s.n_tiles, gl.num_programs(0)):
        row, column = s.tile(t)
        for i in range(s.steps):
            place = step % s.count
            full = s.full.index(place)
            mbarrier.wait(s.empty.index(place), ((step // s.count) & 1) ^ 1)
            mbarrier.expect(full, s.groups * a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            k = i * s.BLOCK_K
            for g in gl.static_range(s.groups):
                box = s.a.index(place * s.groups + g)
                if s.A_ROWS:
                    async_load(a_desc, [row + g * s.ROWS, k], full, box)
                else:
                    async_load(a_desc, [k, row + g * s.ROWS], full, box)
            if s.B_ROWS:
                async_load(b_desc, [k, column], full, s.b.index(place))
            else:
                async_load(b_desc, [column, k], full, s.b.index(place))
            step += 1


@gluon.jit
def multiply(s, step, GROUP: gl.constexpr):
    """The group's rows of a tile whose first step is `step`. A place is given back when the product
    behind its own has been issued."""
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [gl.num_warps(), 1], [16, s.BLOCK_N, 16])  # fmt: skip
    acc = gl.zeros([s.ROWS, s.BLOCK_N], gl.float32, layout)
    for i in range(s.steps):
        place = (step + i) % s.count
        mbarrier.wait(s.full.index(place), ((step + i) // s.count) & 1)
        a = s.a.index(place * s.groups + GROUP)
        b = s.b.index(place)
        if not s.A_ROWS:
            a = a.permute([1, 0])
        if not s.B_ROWS:
            b = b.permute([1, 0])
        acc = warpgroup_mma(a, b, acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=[acc])
        if i > 0:
            mbarrier.arrive(s.empty.index((step + i - 1) % s.count), count=1)
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(s.empty.index((step + s.steps - 1) % s.count), count=1)
    return acc


@gluon.jit
def consumer(out_desc, out_s, s, GROUP: gl.constexpr):
    """The rows of one group, tile after tile; stored in two halves through one place."""
    HALF: gl.constexpr = s.BLOCK_N // 2
    step = 0
    for t in range(gl.program_id(0), s.m_tiles * s.n_tiles, gl.num_programs(0)):
        row, column = s.tile(t)
        acc = multiply(s, step, GROUP)
        step += s.steps
        place = out_s.index(GROUP)
        halves = acc.reshape([s.ROWS, 2, HALF]).permute([0, 2, 1]).split()
        for i in gl.static_range(2):
            tma.store_wait(0)  # what is there has left
            place.store(halves[i].to(out_desc.dtype))
            fence_async_shared()
            async_store(out_desc, [row + GROUP * s.ROWS, column + i * HALF], place)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["m", "n", "k"])
def persistent(
    a_desc, b_desc, out_desc, m, n, k, A_ROWS: gl.constexpr, B_ROWS: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    BUFFERS: gl.constexpr,
):  # fmt: skip
    """out = a b. What lies beyond the matrices is read as zero and never written."""
    G: gl.constexpr = 2
    NB: gl.constexpr = BUFFERS
    a_s = gl.allocate_shared_memory(a_desc.dtype, [NB * G] + a_desc.block_shape, a_desc.layout)
    b_s = gl.allocate_shared_memory(b_desc.dtype, [NB] + b_desc.block_shape, b_desc.layout)
    out_s = gl.allocate_shared_memory(out_desc.dtype, [G] + out_desc.block_shape, out_desc.layout)
    s = Steps(
        a=a_s, b=b_s, full=barriers(NB), empty=barriers(NB), m_tiles=gl.cdiv(m, BLOCK_M),
        n_tiles=gl.cdiv(n, BLOCK_N), steps=gl.cdiv(k, BLOCK_K), count=NB, groups=G,
        A_ROWS=A_ROWS, B_ROWS=B_ROWS, ROWS=BLOCK_M // G, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
        GROUP_M=GROUP_M)  # fmt: skip
    for place in gl.static_range(NB):
        mbarrier.init(s.full.index(place), count=1)
        mbarrier.init(s.empty.index(place), count=G)
    fence_async_shared()  # the copies signal the barriers
    gl.warp_specialize(
        [
            (consumer, (out_desc, out_s, s, 0)),
            (consumer, (out_desc, out_s, s, 1)),
            (producer, (a_desc, b_desc, s)),
        ],
        [4, 1],
        [240, 24])  # fmt: skip
