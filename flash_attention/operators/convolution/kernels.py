"""Convolutions of images: element by element, as a copy that makes a product of matrices of it, and
as such a product without the copy."""

# The functions below are Triton, not Python: the compiler reads their text.
# mypy: ignore-errors

import triton
import triton.language as tl

from ..matrices.kernels import finish, tile_of

SIZES = ["images", "height", "width", "out_height", "out_width", "channels", "filters"]
STRIDES = ["x_image", "x_channel", "x_row", "x_column", "out_image", "out_channel", "out_row"]


@triton.jit
def corner(
    pixel, out_height, out_width, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr, PAD_W: tl.constexpr,
):  # fmt: skip
    """(image, row, column): of the first element of x that an output pixel needs. It may lie in the
    padding."""
    image = pixel // (out_height * out_width)
    rest = pixel % (out_height * out_width)
    top = rest // out_width * STRIDE_H - PAD_H
    left = rest % out_width * STRIDE_W - PAD_W
    return image, top, left


@triton.jit(do_not_specialize=SIZES + STRIDES)
def direct(
    x, w, out, images, height, width, out_height, out_width, channels, filters, x_image, x_channel,
    x_row, x_column, out_image, out_channel, out_row, KH: tl.constexpr, KW: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, PAD_H: tl.constexpr, PAD_W: tl.constexpr,
    DIL_H: tl.constexpr, DIL_W: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """BLOCK_M output pixels of one filter a program; `channels` and `filters` of one group. Any
    strides of x; w is (filters, channels, KH, KW), and the rows of the output have no gaps."""
    pixel = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    image, top, left = corner(pixel, out_height, out_width, STRIDE_H, STRIDE_W, PAD_H, PAD_W)
    filter = tl.program_id(1)
    there = image < images
    at = x + image.to(tl.int64) * x_image + (filter // filters * channels).to(tl.int64) * x_channel
    w += filter.to(tl.int64) * (channels * KH * KW)
    acc = tl.zeros([BLOCK_M], tl.float32)
    for channel in range(channels):
        for tap in range(KH * KW):
            y, z = top + tap // KW * DIL_H, left + tap % KW * DIL_W
            inside = there & (y >= 0) & (y < height) & (z >= 0) & (z < width)
            place = channel.to(tl.int64) * x_channel + y.to(tl.int64) * x_row + z * x_column
            v = tl.load(at + place, mask=inside, other=0.0).to(tl.float32)
            acc += v * tl.load(w + channel * (KH * KW) + tap).to(tl.float32)
    rest = pixel % (out_height * out_width)
    place = rest // out_width * out_row + rest % out_width
    out += image.to(tl.int64) * out_image + filter.to(tl.int64) * out_channel + place
    tl.store(out, acc.to(out.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=SIZES)
def unfold(
    x, out, images, height, width, out_height, out_width, channels, filters,
    GROUPS: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr, PAD_H: tl.constexpr, PAD_W: tl.constexpr, DIL_H: tl.constexpr,
    DIL_W: tl.constexpr, C_ALIGN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The matrix of all that each output pixel needs: a row for each, in it (group, KH, KW,
    channel). `channels` of one group in units of C_ALIGN; x is without gaps, channels last."""
    channels *= C_ALIGN
    pixel = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    image, top, left = corner(pixel, out_height, out_width, STRIDE_H, STRIDE_W, PAD_H, PAD_W)
    tap, group = tl.program_id(1) % (KH * KW), tl.program_id(1) // (KH * KW)
    y, z = top + tap // KW * DIL_H, left + tap % KW * DIL_W
    there = image < images
    inside = there & (y >= 0) & (y < height) & (z >= 0) & (z < width)
    place = ((image.to(tl.int64) * height + y) * width + z) * (channels * GROUPS)
    row = (pixel.to(tl.int64) * GROUPS + group) * (KH * KW) + tap
    for first in range(0, channels, BLOCK_K):
        c = first + tl.arange(0, BLOCK_K)
        at = x + (place[:, None] + (group * channels + c)[None, :])
        v = tl.load(at, mask=inside[:, None] & (c < channels)[None, :], other=0.0)
        at = out + ((row * channels)[:, None] + c[None, :])
        tl.store(at, v, mask=there[:, None] & (c < channels)[None, :])


@triton.jit(do_not_specialize=SIZES)
def implicit(
    x, w, bias, out, images, height, width, out_height, out_width, channels, filters,
    GROUPS: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr, PAD_H: tl.constexpr, PAD_W: tl.constexpr, DIL_H: tl.constexpr,
    DIL_W: tl.constexpr, C_ALIGN: tl.constexpr, F_ALIGN: tl.constexpr, WIDE: tl.constexpr,
    EVEN_C: tl.constexpr, PRECISION: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """BLOCK_M output pixels of BLOCK_N filters of one group a program: the product of the matrix
    that `unfold` would make and of the weights, which are (filters, KH, KW, channels). All without
    gaps, channels last; `channels` and `filters` of a group in units of *_ALIGN."""
    channels, filters = channels * C_ALIGN, filters * F_ALIGN
    group = tl.program_id(1)
    pixels = images * out_height * out_width
    tile_m, tile_n = tile_of(pixels, filters, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    filter = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % filters
    image, top, left = corner(
        row % pixels, out_height, out_width, STRIDE_H, STRIDE_W, PAD_H, PAD_W)  # fmt: skip
    if WIDE:
        row, image = row.to(tl.int64), image.to(tl.int64)
    c = tl.arange(0, BLOCK_K)
    place = ((image * height + top) * width + left) * (channels * GROUPS) + group * channels
    x_at = x + (place[:, None] + c[None, :])
    w_at = w + (((group * filters + filter) * (KH * KW * channels))[None, :] + c[:, None])
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    blocks = tl.cdiv(channels, BLOCK_K)
    for step in range(KH * KW * blocks):
        tap, first = step // blocks, step % blocks * BLOCK_K
        down, right = tap // KW * DIL_H, tap % KW * DIL_W
        y, z = top + down, left + right
        inside = ((y >= 0) & (y < height) & (z >= 0) & (z < width))[:, None]
        x_now = x_at + ((down * width + right) * (channels * GROUPS) + first)
        w_now = w_at + (tap * channels + first)
        if EVEN_C:
            a = tl.load(x_now, mask=inside, other=0.0)
            b = tl.load(w_now)
        else:
            a = tl.load(x_now, mask=inside & (c < channels - first)[None, :], other=0.0)
            b = tl.load(w_now, mask=(c < channels - first)[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    # The group's filters are neighbours, in the output and in the bias.
    out += group * filters
    bias += group * filters
    first_filter = tile_n * BLOCK_N
    rows = out + (row[:, None] * (filters * GROUPS) + first_filter)
    finish(
        acc, bias + first_filter, rows, rows, (row < pixels)[:, None], filters - first_filter, BIAS,
        ACTIVATION, False, PARTS)  # fmt: skip
