"""The launch arguments of the Hopper family's backward pass for the emulator: the layout of
csrc/include/flash/sm90_bwd/args.h, made from the argument record of a call.

On a GPU csrc/runtime/sm90_bwd/launch.cpp does the same with the driver's tensor maps;
tests/runtime compares the two.
"""

from dataclasses import dataclass

from ...emulator import pack_tensor_map
from ..backward_args import (
    ROW_STATS_FLOATS,
    packed_stats_rows,
    row_stats_block,
    row_stats_rows,
    unpack_backward_args,
)
from ..contract import Variant
from .config import FP32_BYTES, GROUP_ROWS, HopperBackwardKernelConfig

WARP_ROWS = 16  # of one copy of a gradient
ELEMENT_BYTES = 2
MAP_BYTES = 128
RAGGED_ROWS = 2**30
ANY_NUMBER = 0x7FFF0000
# Of the record: a multiple of the maps' alignment.
LAUNCH_ARGUMENTS_SIZE = 1408

# The tensors of each kernel's maps: own1, own2, other1, other2, d_own1, d_own2.
_MAPS = {
    Variant.DOTS: (),
    Variant.KEYS: ("k", "v", "q", "d_o", "d_k", "d_v"),
    Variant.QUERIES: ("q", "d_o", "k", "v", "d_q"),
}
_N_MAPS = 8  # with that of RowStats, and of dQ where sums of it are rounded
NARROW_BYTES = 32  # of each row of a box of the latter

Fields = dict[str, int | float]


@dataclass(frozen=True)
class NarrowMap:
    """A map of one tensor more, whose boxes have one chunk of each row."""

    name: str
    rows: int  # of a box
    chunk_bytes: int = NARROW_BYTES


def pack_launch_arguments(
    config: HopperBackwardKernelConfig,
    args: bytes,
    variant: Variant,
    narrow: NarrowMap | None = None,
) -> bytes:
    """The record with the emulator's tensor maps, for `args`, a record of BackwardArgs.

    Raises ValueError for what cuTensorMapEncodeTiled refuses.
    """
    fields = unpack_backward_args(args)
    columns = config.shape(variant)[1] if variant is not Variant.DOTS else 0
    boxes = (GROUP_ROWS, GROUP_ROWS, columns, columns, WARP_ROWS, WARP_ROWS)
    maps = [
        _tensor_map(config, fields, name, rows)
        for name, rows in zip(_MAPS[variant], boxes, strict=False)
    ]
    if variant is Variant.KEYS:
        maps.append(_stats_map(fields, columns))
        if narrow is not None:
            maps.append(_tensor_map(config, fields, narrow.name, narrow.rows, narrow.chunk_bytes))
    return (b"".join(maps).ljust(_N_MAPS * MAP_BYTES, b"\0") + args).ljust(
        LAUNCH_ARGUMENTS_SIZE, b"\0"
    )


def _tensor_map(
    config: HopperBackwardKernelConfig, fields: Fields, name: str, rows: int, chunk_bytes: int = 0
) -> bytes:
    """As dimensions (column in chunk, row, chunk, head, batch), with all chunks in a box, or one of
    `chunk_bytes`. Where there is no memory (no keys, or a gradient that is not wanted) nothing is
    copied, but a map must have an address: that of Q, and strides like those of memory without
    gaps."""
    of_keys = name in ("k", "v", "d_k", "d_v")
    seqlen = int(fields["seqlen_k" if of_keys else "seqlen_q"])
    heads = int(fields["n_heads_kv" if of_keys else "n_heads_q"])
    batch = int(fields["batch"])
    exists = bool(fields[name]) and seqlen > 0
    span = chunk_bytes or config.swizzle_bytes()
    row = span // ELEMENT_BYTES
    chunks = config.d_head // row

    def stride(axis: str, size: int) -> int:
        # Of a dimension of one element it is never used, but has to be a good one.
        used = exists and size > 1
        return (int(fields[f"{name}_stride_{axis}"]) if used else config.d_head) * ELEMENT_BYTES

    sizes = (row, max(seqlen, 1), chunks, heads, batch)
    strides = (stride("seq", seqlen), span, stride("head", heads), stride("batch", batch))
    if exists and fields["cu_seqlens_q"]:
        # Packed rows, whose copies end with a sequence: packed_map() of launch.cpp says how.
        step = int(fields[f"{name}_stride_seq"]) * ELEMENT_BYTES
        sizes = (row, RAGGED_ROWS, chunks * heads, ANY_NUMBER, ANY_NUMBER)
        strides = (step, span, step, 2**64 // RAGGED_ROWS - step)
    return pack_tensor_map(
        int(fields[name if exists else "q"]), ELEMENT_BYTES, sizes, strides,
        (row, rows, 1 if chunk_bytes else chunks, 1, 1), swizzle=span,
    )  # fmt: skip


def _stats_map(fields: Fields, n_queries: int) -> bytes:
    """RowStats as rows of 16-bit elements, as many as a box may have; a box: those of a block."""
    row_bytes = ROW_STATS_FLOATS * FP32_BYTES
    n_rows, heads, batch = (int(fields[name]) for name in ("seqlen_q", "n_heads_q", "batch"))
    head_bytes = row_stats_rows(n_rows, row_stats_block(n_queries)) * row_bytes
    if fields["cu_seqlens_q"]:
        head_bytes, batch = packed_stats_rows(n_rows, batch) * row_bytes, 1
    span = 512 if n_queries % 64 == 0 else n_queries * row_bytes // 2  # stats_row_bytes() of args.h
    row = span // ELEMENT_BYTES
    return pack_tensor_map(
        int(fields["row_stats"]),
        ELEMENT_BYTES,
        (row, head_bytes // span, 1, heads, batch),
        (span, span, head_bytes if heads > 1 else span,
         head_bytes * heads if batch > 1 else span),
        (row, n_queries * row_bytes // span, 1, 1, 1),
    )  # fmt: skip
