"""A convolution for Hopper, warp-specialised: the persistent product of matrices
(matrices/persistent.py), whose left matrix is never made. For one tap, the pixels that a box of
output pixels needs are a box of the image, `tap` further; TMA reads it, and zeros for what lies
beyond the image, so that neither addresses nor masks are computed."""

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

# triton 3.9 has renamed it.
PUBLIC = gl.constexpr(hasattr(gl.shared_memory_descriptor, "reinterpret"))
SIZES = ["images", "out_height", "out_width", "channels", "filters"]


@gluon.jit
def matrices(boxes, COUNT: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """The same memory as COUNT matrices: boxes of whole rows of 128 bytes lie as these do."""
    layout: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    if PUBLIC:
        return boxes.reinterpret(boxes.dtype, [COUNT, ROWS, COLUMNS], layout)
    else:
        return boxes._reinterpret(boxes.dtype, [COUNT, ROWS, COLUMNS], layout)


@aggregate
class Boxes:
    """The output in boxes of IMAGES x LINES x PIXELS, row by row; `count` of them are a tile's
    rows, half of which each group computes if there are two."""

    lines: gl.tensor
    pixels: gl.tensor
    m_tiles: gl.tensor
    n_tiles: gl.tensor
    IMAGES: gl.constexpr
    LINES: gl.constexpr
    PIXELS: gl.constexpr
    count: gl.constexpr
    BLOCK_N: gl.constexpr
    GROUP_M: gl.constexpr

    @gluon.jit
    def tile(self, t):
        """(number of the first box, filter) of the t-th tile: through GROUP_M rows of tiles column
        by column, so that those that run together share operands in the L2 cache."""
        in_group = self.GROUP_M * self.n_tiles
        first = t // in_group * self.GROUP_M
        rest = t % in_group
        height = gl.minimum(self.m_tiles - first, self.GROUP_M)
        return (first + rest % height) * self.count, rest // height * self.BLOCK_N

    @gluon.jit
    def at(self, box):
        """(image, line, pixel) where a box begins."""
        across = gl.cdiv(self.pixels, self.PIXELS)
        down = gl.cdiv(self.lines, self.LINES)
        line = box // across
        return line // down * self.IMAGES, line % down * self.LINES, box % across * self.PIXELS

    @gluon.jit
    def after(self, image, line, pixel):
        """Where the next one begins."""
        pixel += self.PIXELS
        line = gl.where(pixel < self.pixels, line, line + self.LINES)
        pixel = gl.where(pixel < self.pixels, pixel, 0)
        image = gl.where(line < self.lines, image, image + self.IMAGES)
        line = gl.where(line < self.lines, line, 0)
        return image, line, pixel


@aggregate
class Steps:
    """`count` places in shared memory, each for the operands of one step, and the barriers that
    say whether they are full or empty. A place of `x` is the `x_boxes` of a tile, or `groups`
    matrices `a`; one of `w` is the matrix `b`."""

    x_boxes: gl.shared_memory_descriptor
    w: gl.shared_memory_descriptor
    a: gl.shared_memory_descriptor
    b: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor
    steps: gl.tensor
    blocks: gl.tensor
    count: gl.constexpr
    groups: gl.constexpr
    BLOCK_K: gl.constexpr


@gluon.jit
def producer(
    x_desc, w_desc, s, boxes, KW: gl.constexpr, PAD_H: gl.constexpr, PAD_W: gl.constexpr,
    DIL_H: gl.constexpr, DIL_W: gl.constexpr,
):  # fmt: skip
    """Loads the operands of every tile, step by step, as soon as a place is free."""
    step = 0
    for t in range(gl.program_id(0), boxes.m_tiles * boxes.n_tiles, gl.num_programs(0)):
        box, filter = boxes.tile(t)
        first_image, first_line, first_pixel = boxes.at(box)
        for i in range(s.steps):
            place = step % s.count
            full = s.full.index(place)
            tap = i // s.blocks
            channel = i % s.blocks * s.BLOCK_K
            down, right = tap // KW * DIL_H - PAD_H, tap % KW * DIL_W - PAD_W
            mbarrier.wait(s.empty.index(place), ((step // s.count) & 1) ^ 1)
            mbarrier.expect(full, boxes.count * x_desc.block_type.nbytes + w_desc.block_type.nbytes)
            async_load(w_desc, [filter, tap, channel], full, s.w.index(place))
            image, line, pixel = first_image, first_line, first_pixel
            for each in gl.static_range(boxes.count):
                where = s.x_boxes.index(place * boxes.count + each)
                async_load(x_desc, [image, line + down, pixel + right, channel], full, where)
                image, line, pixel = boxes.after(image, line, pixel)
            step += 1


@gluon.jit
def multiply(s, acc, step, GROUP: gl.constexpr):
    """acc and the group's rows of a tile whose first step is `step`. A place is given back when the
    product behind its own has been issued."""
    for i in range(s.steps):
        place = (step + i) % s.count
        mbarrier.wait(s.full.index(place), ((step + i) // s.count) & 1)
        a = s.a.index(place * s.groups + GROUP)
        acc = warpgroup_mma(a, s.b.index(place).permute([1, 0]), acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=[acc])
        if i > 0:
            mbarrier.arrive(s.empty.index((step + i - 1) % s.count), count=1)
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(s.empty.index((step + s.steps - 1) % s.count), count=1)
    return acc


@gluon.jit
def part_of(acc, PART: gl.constexpr, PARTS: gl.constexpr):
    """One of PARTS parts of the columns."""
    if PARTS == 1:
        return acc
    else:
        HALF: gl.constexpr = acc.shape[1] // 2
        left, right = acc.reshape([acc.shape[0], 2, HALF]).permute([0, 2, 1]).split()
        if PART < PARTS // 2:
            return part_of(left, PART, PARTS // 2)
        else:
            return part_of(right, PART - PARTS // 2, PARTS // 2)


@gluon.jit
def consumer(
    out_desc, out_boxes, out_s, bias, filters, s, boxes, BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """The rows of one group, tile after tile; stored in parts of the columns, through two places in
    turn."""
    ROWS: gl.constexpr = s.a.shape[1]
    WIDTH: gl.constexpr = out_s.shape[2]
    EACH: gl.constexpr = boxes.count // s.groups
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [gl.num_warps(), 1], [16, boxes.BLOCK_N, 16])  # fmt: skip
    step = 0
    turn = 0
    for t in range(gl.program_id(0), boxes.m_tiles * boxes.n_tiles, gl.num_programs(0)):
        box, filter = boxes.tile(t)
        acc = gl.zeros([ROWS, boxes.BLOCK_N], gl.float32, layout)
        if BIAS:
            column = filter + gl.arange(0, boxes.BLOCK_N, gl.SliceLayout(0, layout))
            each_bias = gl.load(bias + column, mask=column < filters, other=0.0)
        acc = multiply(s, acc, step, GROUP)
        if BIAS:  # it came meanwhile
            acc += each_bias.to(gl.float32)[None, :]
        step += s.steps
        for i in gl.static_range(boxes.BLOCK_N // WIDTH):
            part = activate(part_of(acc, i, boxes.BLOCK_N // WIDTH), ACTIVATION)
            place = turn % 2 * s.groups + GROUP
            tma.store_wait(EACH)  # what was there before the last part has left
            out_s.index(place).store(part.to(out_desc.dtype))
            fence_async_shared()
            image, line, pixel = boxes.at(box + GROUP * EACH)
            for each in gl.static_range(EACH):
                at = [image, line, pixel, filter + i * WIDTH]
                async_store(out_desc, at, out_boxes.index(place * EACH + each))
                image, line, pixel = boxes.after(image, line, pixel)
            turn += 1
    tma.store_wait(0)


@gluon.jit(do_not_specialize=SIZES)
def persistent(
    x_desc, w_desc, out_desc, bias, images, out_height, out_width, channels, filters,
    KH: gl.constexpr, KW: gl.constexpr, PAD_H: gl.constexpr, PAD_W: gl.constexpr,
    DIL_H: gl.constexpr, DIL_W: gl.constexpr, BIAS: gl.constexpr, ACTIVATION: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, GROUP_M: gl.constexpr,
    BUFFERS: gl.constexpr, IMAGES: gl.constexpr, LINES: gl.constexpr, PIXELS: gl.constexpr,
):  # fmt: skip
    """out = activation(the convolution of stride 1 + bias), all channels last. What lies beyond the
    tensors is read as zero and never written."""
    G: gl.constexpr = BLOCK_M // 64 if BLOCK_M < 128 else 2
    NB: gl.constexpr = BUFFERS
    ROWS: gl.constexpr = BLOCK_M // G
    COUNT: gl.constexpr = BLOCK_M // (IMAGES * LINES * PIXELS)
    WIDTH: gl.constexpr = out_desc.block_shape[3]
    x_s = gl.allocate_shared_memory(x_desc.dtype, [NB * COUNT] + x_desc.block_shape, x_desc.layout)
    w_s = gl.allocate_shared_memory(x_desc.dtype, [NB] + w_desc.block_shape, w_desc.layout)
    out_boxes = gl.allocate_shared_memory(
        x_desc.dtype, [2 * COUNT] + out_desc.block_shape, out_desc.layout
    )
    out_s = matrices(out_boxes, 2 * G, ROWS, WIDTH)
    blocks = gl.cdiv(channels, BLOCK_K)
    boxes_in_all = gl.cdiv(images, IMAGES) * gl.cdiv(out_height, LINES) * gl.cdiv(out_width, PIXELS)
    boxes = Boxes(
        lines=out_height, pixels=out_width, m_tiles=gl.cdiv(boxes_in_all, COUNT),
        n_tiles=gl.cdiv(filters, BLOCK_N), IMAGES=IMAGES, LINES=LINES, PIXELS=PIXELS, count=COUNT,
        BLOCK_N=BLOCK_N, GROUP_M=GROUP_M)  # fmt: skip
    s = Steps(
        x_boxes=x_s, w=w_s, full=barriers(NB), empty=barriers(NB),
        a=matrices(x_s, NB * G, ROWS, BLOCK_K), b=matrices(w_s, NB, BLOCK_N, BLOCK_K),
        steps=KH * KW * blocks, blocks=blocks, count=NB, groups=G, BLOCK_K=BLOCK_K)  # fmt: skip
    for place in gl.static_range(NB):
        mbarrier.init(s.full.index(place), count=1)
        mbarrier.init(s.empty.index(place), count=G)
    fence_async_shared()  # the copies signal the barriers
    if G == 1:
        gl.warp_specialize(
            [
                (consumer, (
                    out_desc, out_boxes, out_s, bias, filters, s, boxes, BIAS, ACTIVATION, 0)),
                (producer, (x_desc, w_desc, s, boxes, KW, PAD_H, PAD_W, DIL_H, DIL_W)),
            ],
            [1],
            [40])  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (consumer, (
                    out_desc, out_boxes, out_s, bias, filters, s, boxes, BIAS, ACTIVATION, 0)),
                (consumer, (
                    out_desc, out_boxes, out_s, bias, filters, s, boxes, BIAS, ACTIVATION, 1)),
                (producer, (x_desc, w_desc, s, boxes, KW, PAD_H, PAD_W, DIL_H, DIL_W)),
            ],
            [4, 1],
            [240, 40])  # fmt: skip
