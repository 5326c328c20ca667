"""The launch arguments of the Hopper family's serving kernels for the emulator: the layout of
csrc/include/flash/sm90_serve/args.h, made from the argument record of a call.

On a GPU csrc/runtime/sm90_serve/launch.cpp does the same with the driver's tensor maps;
tests/runtime compares the two.
"""

import struct

from ..serve_args import SERVE_ARGS_SIZE, unpack_serve_args
from ..sm90_fwd.arguments import Fields, heads_per_section, map_of_tensor
from .config import HopperServeKernelConfig

_MAPS = ("q", "k", "v", "o")
_LAYOUT = struct.Struct(f"<128s128s128s128s{SERVE_ARGS_SIZE}sQ2iQq2i")
# Of pages in a map: more than there are.
_ANY_NUMBER = 0x7FFF0000
LAUNCH_ARGUMENTS_SIZE = 1088


def pack_launch_arguments(
    config: HopperServeKernelConfig, args: bytes, *, tile_counter: int = 0
) -> bytes:
    """The record with the emulator's tensor maps, for `args`, a record of ServeArgs.

    `tile_counter` is the address of an int32 that is 0; 0: blocks compute fixed shares of the
    tiles. Raises ValueError for what cuTensorMapEncodeTiled refuses.
    """
    fields = unpack_serve_args(args)
    maps = [_tensor_map(config, fields, name) for name in _MAPS]
    tail = (tile_counter, _tiles_per_head(config, fields), _heads_per_section(config, fields))
    return _LAYOUT.pack(*maps, args, *tail, *_pages(config, fields)).ljust(
        LAUNCH_ARGUMENTS_SIZE, b"\0"
    )


def _tensor_map(config: HopperServeKernelConfig, fields: Fields, name: str) -> bytes:
    """As those of the forward pass. Packed rows are one batch, a page is one of any number."""
    d = int(fields["d_v"]) if name in "vo" else config.d_head
    if config.paged and name in "kv":
        in_table = fields["block_table"] and fields["seqlen_k"]
        *_, part_rows = _pages(config, fields)
        return map_of_tensor(
            config.forward(), fields, name, int(fields["page_size" if in_table else "seqlen_k"]),
            _ANY_NUMBER, "page", box=(part_rows, 1), d_head=d,
        )  # fmt: skip
    of_queries = name in "qo"
    packed = bool(fields["cu_seqlens_q" if of_queries else "cu_seqlens_k"])
    rows = int(fields[("n_rows" if packed else "seqlen_q") if of_queries else "seqlen_k"])
    return map_of_tensor(
        config.forward(), fields, name, rows, 1 if packed else int(fields["batch"]),
        "batch" if of_queries else "page", d_head=d,
    )  # fmt: skip


def _pages(config: HopperServeKernelConfig, fields: Fields) -> tuple[int, int, int, int]:
    """Where the pages of each sequence stand, one sequence's from the next, the keys of a page, and
    of one copy out of it."""
    if not config.paged:
        return 0, 0, 0, 0
    if not fields["block_table"]:
        return int(fields["cache_batch_idx"]), 1, 2**31 - 1, config.block_n
    keys = int(fields["page_size"])
    return int(fields["block_table"]), int(fields["table_stride"]), keys, config.part_rows(keys)


def _tiles_per_head(config: HopperServeKernelConfig, fields: Fields) -> int:
    rows, batch = config.blocks()[0], int(fields["batch"])
    if fields["cu_seqlens_q"]:
        return int(fields["n_rows"]) // rows + batch
    return -(-int(fields["seqlen_q"]) // rows) * batch


def _heads_per_section(config: HopperServeKernelConfig, fields: Fields) -> int:
    """By the average sequence."""
    keys = int(fields["seqlen_k"])
    if fields["cu_seqlens_k"]:
        keys //= int(fields["batch"])
    heads = int(fields["n_heads_q"])
    return heads_per_section(
        2 * keys * config.d_head * config.dtype.bytes, heads // int(fields["n_heads_kv"]), heads
    )
