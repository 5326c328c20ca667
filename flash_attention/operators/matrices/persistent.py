"""A product of matrices for Hopper, warp-specialised (v5): one warp loads by TMA, two warpgroups
multiply, each BLOCK_M / 2 rows of a tile. The grid has as many programs as the GPU has
multiprocessors; each takes every so-many-th tile, and the loads of the next begin while the last is
stored. A tile's last HELD parts stay in registers, and are finished while the tensor cores are busy
with the next tile's first steps."""

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
from ..activations import activate, activate_sum, scaled_bias

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
    PARTS: gl.constexpr
    HELD: gl.constexpr
    BIAS: gl.constexpr
    ACTIVATION: gl.constexpr
    FOLDED: gl.constexpr  # the bias into the activation

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
def begin(s, acc, step, GROUP: gl.constexpr):
    """The group's rows times what the step has of b are on their way into acc."""
    place = step % s.count
    mbarrier.wait(s.full.index(place), (step // s.count) & 1)
    a = s.a.index(place * s.groups + GROUP)
    b = s.b.index(place)
    if not s.A_ROWS:
        a = a.permute([1, 0])
    if not s.B_ROWS:
        b = b.permute([1, 0])
    return warpgroup_mma(a, b, acc, is_async=True)


@gluon.jit
def give_back(s, step):
    mbarrier.arrive(s.empty.index(step % s.count), count=1)


@gluon.jit
def parts(x, N: gl.constexpr):
    """x's columns as N tensors."""
    if N == 1:
        found = (x,)
    else:
        HALF: gl.constexpr = x.shape[1] // 2
        left, right = x.reshape([x.shape[0], 2, HALF]).permute([0, 2, 1]).split()
        found = parts(left, N // 2) + parts(right, N // 2)
    return found


@gluon.jit
def finish(part, out_desc, out_s, bias_s, s, row, column, PART: gl.constexpr, GROUP: gl.constexpr):
    """The PART-th part of the group's tile at (row, column), with its bias, activated and stored,
    through one of two places."""
    WIDTH: gl.constexpr = s.BLOCK_N // s.PARTS
    if s.BIAS:
        more = bias_s.index(GROUP).slice(PART * WIDTH, WIDTH)
        more = more.load(gl.SliceLayout(0, part.type.layout))[None, :].broadcast_to(part.shape)
        part = activate_sum(part, more, s.ACTIVATION, s.FOLDED)
    else:
        part = activate(part, s.ACTIVATION)
    place = out_s.index(2 * GROUP + PART % 2)
    tma.store_wait(1)  # what is there has left
    place.store(part.to(out_desc.dtype))
    fence_async_shared()
    async_store(out_desc, [row + GROUP * s.ROWS, column + PART * WIDTH], place)


@gluon.jit
def consumer(out_desc, bias, n, out_s, bias_s, s, GROUP: gl.constexpr):
    """The rows of one group, tile after tile. A place is given back when the product behind its own
    has been issued."""
    FIRST: gl.constexpr = s.PARTS - s.HELD  # of those that are held
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [gl.num_warps(), 1], [16, s.BLOCK_N, 16])  # fmt: skip
    wide: gl.constexpr = gl.BlockedLayout([s.BLOCK_N // 128], [32], [4], [0])
    nothing = gl.zeros([s.ROWS, s.BLOCK_N], gl.float32, layout)
    held = parts(nothing, s.PARTS)[FIRST:]
    held_row = s.m_tiles * (s.ROWS * s.groups)  # beyond the last one, where nothing is written
    held_column = 0
    if s.BIAS:
        bias_s.index(GROUP).store(gl.zeros([s.BLOCK_N], gl.float32, wide))
    step = 0
    for t in range(gl.program_id(0), s.m_tiles * s.n_tiles, gl.num_programs(0)):
        acc = nothing
        # The groups finish a part in turns: what one computes keeps its own next product waiting.
        for i in gl.static_range(2 * s.HELD):
            acc = begin(s, acc, step + i, GROUP)
            if i % 2 == GROUP:
                finish(
                    held[i // 2], out_desc, out_s, bias_s, s, held_row, held_column, FIRST + i // 2,
                    GROUP)  # fmt: skip
            acc = warpgroup_mma_wait(1, deps=[acc])
            if i > 0:
                give_back(s, step + i - 1)
        row, column = s.tile(t)
        if s.BIAS:
            at = column + gl.arange(0, s.BLOCK_N, layout=wide)
            more = gl.load(bias + at, mask=at < n, other=0.0)
        for i in range(2 * s.HELD, s.steps):
            acc = begin(s, acc, step + i, GROUP)
            acc = warpgroup_mma_wait(1, deps=[acc])
            if s.HELD > 0 or i > 0:
                give_back(s, step + i - 1)
        step += s.steps
        if s.BIAS:
            bias_s.index(GROUP).store(scaled_bias(more, s.FOLDED))
        acc = warpgroup_mma_wait(0, deps=[acc])
        give_back(s, step - 1)
        tile = parts(acc, s.PARTS)
        for i in gl.static_range(FIRST):
            finish(tile[i], out_desc, out_s, bias_s, s, row, column, i, GROUP)
        held = tile[FIRST:]
        held_row = row
        held_column = column
    for i in gl.static_range(s.HELD):
        finish(held[i], out_desc, out_s, bias_s, s, held_row, held_column, FIRST + i, GROUP)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["m", "n", "k"])
def persistent(
    a_desc, b_desc, out_desc, bias, m, n, k, A_ROWS: gl.constexpr, B_ROWS: gl.constexpr,
    BIAS: gl.constexpr, ACTIVATION: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr, BUFFERS: gl.constexpr, PARTS: gl.constexpr,
    HELD: gl.constexpr,
):  # fmt: skip
    """out = activation(a b + bias). What lies beyond the matrices is read as zero and never
    written. k has more than 2 * HELD steps."""
    G: gl.constexpr = 2
    NB: gl.constexpr = BUFFERS
    a_s = gl.allocate_shared_memory(a_desc.dtype, [NB * G] + a_desc.block_shape, a_desc.layout)
    b_s = gl.allocate_shared_memory(b_desc.dtype, [NB] + b_desc.block_shape, b_desc.layout)
    out_s = gl.allocate_shared_memory(
        out_desc.dtype, [2 * G] + out_desc.block_shape, out_desc.layout)  # fmt: skip
    bias_s = gl.allocate_shared_memory(
        gl.float32, [G, BLOCK_N], gl.SwizzledSharedLayout(1, 1, 1, [0]))  # fmt: skip
    s = Steps(
        a=a_s, b=b_s, full=barriers(NB), empty=barriers(NB), m_tiles=gl.cdiv(m, BLOCK_M),
        n_tiles=gl.cdiv(n, BLOCK_N), steps=gl.cdiv(k, BLOCK_K), count=NB, groups=G,
        A_ROWS=A_ROWS, B_ROWS=B_ROWS, ROWS=BLOCK_M // G, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
        GROUP_M=GROUP_M, PARTS=PARTS, HELD=HELD, BIAS=BIAS, ACTIVATION=ACTIVATION,
        FOLDED=ACTIVATION == "silu" and out_desc.dtype == gl.float16)  # fmt: skip
    for place in gl.static_range(NB):
        mbarrier.init(s.full.index(place), count=1)
        mbarrier.init(s.empty.index(place), count=G)
    fence_async_shared()  # the copies signal the barriers
    gl.warp_specialize(
        [
            (consumer, (out_desc, bias, n, out_s, bias_s, s, 0)),
            (consumer, (out_desc, bias, n, out_s, bias_s, s, 1)),
            (producer, (a_desc, b_desc, s)),
        ],
        [4, 1],
        [240, 24])  # fmt: skip
