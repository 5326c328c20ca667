"""The Hopper family's launch arguments for the emulator: the layout of
csrc/include/flash/sm90/args.h, made from the argument record of a call.

On a GPU csrc/runtime/sm90/launch.cpp does the same with the driver's tensor maps;
tests/runtime compares the two.
"""

import struct

from ...emulator import pack_tensor_map
from ..forward_args import unpack_forward_args
from .config import GROUP_ROWS, HopperForwardKernelConfig

WARP_ROWS = 16  # of one copy of the output
# K and V of this many bytes stay in L2 while query tiles of other heads come and go.
SECTION_BYTES = 40_000_000
SECTION_KV_HEADS = 32

_MAPS = ("q", "k", "v", "o")
INT_FIELDS = ("batch", "seqlen_q", "seqlen_k", "n_heads_q", "n_heads_kv", "causal")
FIELDS = (*_MAPS, "lse", "tile_counter", *INT_FIELDS, "softmax_scale", "heads_per_section")
_LAYOUT = struct.Struct("<128s128s128s128sQQ6ifi16x")
LAUNCH_ARGUMENTS_SIZE = _LAYOUT.size

Fields = dict[str, int | float]


def pack_launch_arguments(
    config: HopperForwardKernelConfig, args: bytes, *, tile_counter: int = 0
) -> bytes:
    """The record with the emulator's tensor maps, for `args`, a record of ForwardArgs.

    `tile_counter` is the address of an int32 that is 0; 0: blocks compute fixed shares of the
    tiles. Raises ValueError for what cuTensorMapEncodeTiled refuses.
    """
    fields = unpack_forward_args(args)
    maps = [_tensor_map(config, fields, name) for name in _MAPS]
    ints = [int(fields[name]) for name in INT_FIELDS]
    section = heads_per_section(
        2 * ints[2] * config.d_head * config.dtype.bytes, ints[3] // ints[4], ints[3] * ints[0]
    )
    return _LAYOUT.pack(
        *maps, int(fields["lse"]), tile_counter, *ints, fields["softmax_scale"], section
    )


def _tensor_map(config: HopperForwardKernelConfig, fields: Fields, name: str) -> bytes:
    of_queries = name in "qo"
    rows = int(fields["seqlen_q" if of_queries else "seqlen_k"])
    return map_of_tensor(config, fields, name, rows, int(fields["batch"]))


def map_of_tensor(
    config: HopperForwardKernelConfig, fields: Fields, name: str, rows: int, batch: int,
    batch_axis: str = "batch", box: tuple[int, int] | None = None, d_head: int = 0,
) -> bytes:  # fmt: skip
    """As dimensions (column in chunk, row, chunk, head, batch). `batch_axis`: what its stride is
    called; `box`: the rows and chunks of one copy, and `d_head`: the tensor's, where they are not
    the forward pass'."""
    heads = int(fields["n_heads_q" if name in "qo" else "n_heads_kv"])
    d_head = d_head or config.d_head
    columns, chunks = config.chunk_columns(), d_head // config.chunk_columns()
    rows_of = {"q": GROUP_ROWS, "o": WARP_ROWS}
    box_rows, box_chunks = box or (rows_of.get(name, config.block_n), chunks)

    def stride(axis: str, size: int) -> int:
        # Of a dimension of one element it is never used, but has to be a good one.
        elements = int(fields[f"{name}_stride_{axis}"]) if size > 1 else d_head
        return elements * config.dtype.bytes

    return pack_tensor_map(
        # Without keys nothing is loaded, but a map must have an address.
        int(fields[name if rows else "q"]),
        config.dtype.bytes,
        (columns, max(rows, 1), chunks, heads, batch),
        (stride("seq", rows), config.swizzle_bytes(), stride("head", heads),
         stride(batch_axis, batch)),
        (columns, box_rows, box_chunks, 1, 1),
        swizzle=config.swizzle_bytes(),
    )  # fmt: skip


def heads_per_section(kv_head_bytes: int, queries_per_kv: int, heads: int) -> int:
    """Query heads, of `heads`, whose keys and values share L2; at least one."""
    if not kv_head_bytes:
        return 1
    return max(
        1, min(heads, min(SECTION_BYTES // kv_head_bytes, SECTION_KV_HEADS) * queries_per_kv)
    )
