"""A convolution of one tap for Hopper whose tiles all run at once, as a product of matrices: a tile
a program, several programs on a multiprocessor. Nobody waits for groups of warps to begin, nor one
tile for another; that is what the persistent kernel loses where there is hardly a tile for each."""

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
from ..activations import activate
from ..matrices.persistent import async_load, async_store, barriers
from .persistent import matrices, part_of


@aggregate
class Places:
    """`count` places in shared memory, each for the operands of one step, and the barriers that say
    whether they are full."""

    x: gl.shared_memory_descriptor
    w: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    pixel: gl.tensor
    filter: gl.tensor
    count: gl.constexpr

    @gluon.jit
    def load(self, x_desc, w_desc, step):
        """Begins to load the operands of a step."""
        place = step % self.count
        full = self.full.index(place)
        channel = step * x_desc.block_shape[1]
        mbarrier.expect(full, x_desc.block_type.nbytes + w_desc.block_type.nbytes)
        async_load(x_desc, [self.pixel, channel], full, self.x.index(place))
        async_load(w_desc, [self.filter, channel], full, self.w.index(place))

    @gluon.jit
    def product(self, step, acc):
        """acc and the product of a step, which need not be there yet."""
        place = step % self.count
        mbarrier.wait(self.full.index(place), (step // self.count) & 1)
        w = self.w.index(place).permute([1, 0])
        return warpgroup_mma(self.x.index(place), w, acc, is_async=True)


@gluon.jit(do_not_specialize=["channels", "filters"])
def single(
    x_desc, w_desc, out_desc, bias, channels, filters, BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    BUFFERS: gl.constexpr,
):  # fmt: skip
    """out = activation(x w^T + bias), of matrices of pixels, filters and channels. What lies beyond
    them is read as zero and never written."""
    WIDTH: gl.constexpr = out_desc.block_shape[1]
    x_s = gl.allocate_shared_memory(x_desc.dtype, [BUFFERS] + x_desc.block_shape, x_desc.layout)
    w_s = gl.allocate_shared_memory(x_desc.dtype, [BUFFERS] + w_desc.block_shape, w_desc.layout)
    m_tiles = gl.num_programs(0) // gl.cdiv(filters, BLOCK_N)
    s = Places(
        x=x_s, w=w_s, full=barriers(BUFFERS), pixel=gl.program_id(0) % m_tiles * BLOCK_M,
        filter=gl.program_id(0) // m_tiles * BLOCK_N, count=BUFFERS)  # fmt: skip
    for place in gl.static_range(BUFFERS):
        mbarrier.init(s.full.index(place), count=1)
    fence_async_shared()  # the copies signal the barriers
    steps = gl.cdiv(channels, BLOCK_K)
    for step in gl.static_range(BUFFERS):
        if step < steps:
            s.load(x_desc, w_desc, step)
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [gl.num_warps(), 1], [16, BLOCK_N, 16])  # fmt: skip
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout)
    if BIAS:  # into shared memory: in registers it would leave room for a program less
        each: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        bias_s = gl.allocate_shared_memory(
            gl.float32, [BLOCK_N // WIDTH, WIDTH], gl.SwizzledSharedLayout(1, 1, 1, order=[0])
        )
        for i in gl.static_range(BLOCK_N // WIDTH):
            column = s.filter + i * WIDTH + gl.arange(0, WIDTH, each)
            one = gl.load(bias + column, mask=column < filters, other=0.0)
            bias_s.index(i).store(one.to(gl.float32))
    for step in range(steps):
        acc = warpgroup_mma_wait(1, deps=[s.product(step, acc)])
        later = step - 1 + BUFFERS  # into the place of the step before this one
        if (step > 0) & (later < steps):
            s.load(x_desc, w_desc, later)
    acc = warpgroup_mma_wait(0, deps=[acc])
    # In parts through the places of x, which are read no more. Stored as a whole by Triton 3.6, acc
    # makes ptxas wait for each product: 15.2 us instead of 10.2, 2,048 channels of 7 x 7 to 512.
    out_s = matrices(x_s, BUFFERS * (BLOCK_K // WIDTH), BLOCK_M, WIDTH)
    for i in gl.static_range(BLOCK_N // WIDTH):
        part = part_of(acc, i, BLOCK_N // WIDTH)
        if BIAS:
            part += bias_s.index(i).load(gl.SliceLayout(0, part.type.layout))[None, :]
        part = activate(part, ACTIVATION)
        out_s.index(i).store(part.to(out_desc.dtype))
        fence_async_shared()
        async_store(out_desc, [s.pixel, s.filter + i * WIDTH], out_s.index(i))
    tma.store_wait(0)
