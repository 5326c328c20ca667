"""The launch arguments of the Hopper family's serving kernels for MLA for the emulator: the layout
of csrc/include/flash/sm90_serve_mla/args.h, made from the argument record of a call.

On a GPU csrc/runtime/sm90_serve_mla/launch.cpp does the same with the driver's tensor maps;
tests/runtime compares the two.
"""

import struct

from ..serve_args import SERVE_ARGS_SIZE, unpack_serve_args
from ..sm90_fwd.arguments import Fields, map_of_tensor
from ..sm90_fwd.config import HopperForwardKernelConfig, MaxPolicy
from .config import HopperMlaKernelConfig

_LAYOUT = struct.Struct(f"<128s128s{SERVE_ARGS_SIZE}s3i")
# Of pages in a map: more than there are.
_ANY_NUMBER = 0x7FFF0000
_CHUNK_COLUMNS = 64
_MOST_ABREAST = 8
LAUNCH_ARGUMENTS_SIZE = 768


def pack_launch_arguments(config: HopperMlaKernelConfig, args: bytes) -> bytes:
    """The record with the emulator's tensor maps, for `args`, a record of ServeArgs. Raises
    ValueError for what cuTensorMapEncodeTiled refuses."""
    fields = unpack_serve_args(args)
    table, page_size = bool(fields["block_table"]), int(fields["page_size"])
    part_rows = config.part_rows(page_size) if table else config.B_c
    half = config.d_v() // _CHUNK_COLUMNS // 2
    value_chunks = half if part_rows == config.B_c else 1
    maps = [
        _tensor_map(config, fields, name, (part_rows, chunks))
        for name, chunks in (("k", 1), ("v", value_chunks))
    ]
    keys = page_size if table else 2**31 - 1
    return _LAYOUT.pack(*maps, args, keys, part_rows, _tiles_abreast(config, fields)).ljust(
        LAUNCH_ARGUMENTS_SIZE, b"\0"
    )


def _tiles_abreast(config: HopperMlaKernelConfig, fields: Fields) -> int:
    """Tiles of a sequence that thread blocks compute beside each other."""
    differ = fields["cu_seqlens_q"] or fields["seqused_q"]
    if differ or not fields["arrivals"]:
        return 1
    heads, n_blocks = int(fields["n_heads_kv"]), int(fields["n_splits"])
    rows = int(fields["seqlen_q"]) * (int(fields["n_heads_q"]) // heads)
    tiles = -(-rows // config.B_r)
    is_one_each = tiles * heads * int(fields["batch"]) <= n_blocks
    return 1 if is_one_each or tiles > min(_MOST_ABREAST, n_blocks) else tiles


def _tensor_map(
    config: HopperMlaKernelConfig, fields: Fields, name: str, box: tuple[int, int]
) -> bytes:
    """Of chunks of one row of shared memory. A page is one of any number, packed keys are one."""
    in_table = fields["block_table"] and fields["seqlen_k"]
    batch = 1 if fields["cu_seqlens_k"] else int(fields["batch"])
    if fields["block_table"] or fields["cache_batch_idx"]:
        batch = _ANY_NUMBER
    # Whose chunks and swizzle these are.
    chunks = HopperForwardKernelConfig(
        config.dtype, _CHUNK_COLUMNS, config.B_c, 1, 1, 1, MaxPolicy.EXACT,
        overlap=False, ping_pong=False, o_in_q=False,
    )  # fmt: skip
    return map_of_tensor(
        chunks, fields, name, int(fields["page_size" if in_table else "seqlen_k"]), batch, "page",
        box=box, d_head=int(fields["d_v" if name == "v" else "d_head"]),
    )  # fmt: skip
