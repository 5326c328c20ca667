"""The launch arguments of the Hopper family's serving kernels for the emulator: the layout of
csrc/include/flash/sm90_serve/args.h, made from the argument record of a call.

On a GPU csrc/runtime/sm90_serve/launch.cpp does the same with the driver's tensor maps;
tests/runtime compares the two.
"""

import math
import struct

from ...emulator import pack_tensor_map
from ..serve_args import NO_WINDOW, SERVE_ARGS_SIZE, unpack_serve_args
from ..sm90_fwd.arguments import WARP_ROWS, Fields, heads_per_section, map_of_tensor
from ..sm90_fwd.config import GROUP_ROWS
from .config import HopperServeKernelConfig

_MAPS = ("q", "k", "v", "o")
_LAYOUT = struct.Struct(f"<128s128s128s128s{SERVE_ARGS_SIZE}sQ2iQq2i3i7fIi")
# Of pages in a map: more than there are.
_ANY_NUMBER = 0x7FFF0000
# tanh(x) / x as a polynomial in x^2; up to which x^2 a coefficient, and those behind, are as 0.
_TANH_RATIO = tuple(
    map(float.fromhex, ("0x1.ffffecp-1", "-0x1.554a16p-2", "0x1.1000f8p-3", "-0x1.a6c0f6p-5",
                        "0x1.1251bcp-6", "-0x1.92018p-9"))
)  # fmt: skip
_NEGLIGIBLE = (0.0, 2.0**-23, 2.0**-11, 2.0**-7, 2.0**-5, 2.0**-4)
_SMALLEST, _LARGEST = 2.0**-126, (2 - 2.0**-23) * 2.0**127  # normal numbers of fp32
LAUNCH_ARGUMENTS_SIZE = _LAYOUT.size
_LARGEST_WORD = 2**32 - 1


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
    heads = _packed_heads(config, fields)
    packing = (heads, GROUP_ROWS // heads, 2**16 // heads + 1)
    *_, page_keys, part_rows = pages = _pages(config, fields)
    # As Divisor in tile/divisor.cuh has it; and parts of a block.
    dividing = (_LARGEST_WORD // page_keys, config.block_n // part_rows) if config.paged else (0, 0)
    return _LAYOUT.pack(*maps, args, *tail, *pages, *packing, *_soft_cap(fields), *dividing)


def _tensor_map(config: HopperServeKernelConfig, fields: Fields, name: str) -> bytes:
    """As those of the forward pass. Packed rows are one batch, a page is one of any number."""
    d = config.d_v() if name in "vo" else config.d_head
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
    if config.pack_gqa and of_queries:
        return _map_of_groups(config, fields, name, rows, 1 if packed else int(fields["batch"]), d)
    return map_of_tensor(
        config.forward(), fields, name, rows, 1 if packed else int(fields["batch"]),
        "batch" if of_queries else "page", d_head=d,
    )  # fmt: skip


def _map_of_groups(
    config: HopperServeKernelConfig, fields: Fields, name: str, rows: int, batch: int, d_head: int
) -> bytes:
    """As dimensions (column, head, row, group of heads, batch). A box has a chunk's columns of a
    group of consumers' rows, or of a warp's."""
    heads = _packed_heads(config, fields)
    groups = int(fields["n_heads_kv"])
    columns, box_rows = config.forward().chunk_columns(), {"q": GROUP_ROWS, "o": WARP_ROWS}[name]
    box_heads = min(heads, box_rows)

    def stride(axis: str, size: int, times: int = 1) -> int:
        elements = times * int(fields[f"{name}_stride_{axis}"]) if size > 1 else d_head
        return elements * config.dtype.bytes

    return pack_tensor_map(
        int(fields[name if rows else "q"]),
        config.dtype.bytes,
        (d_head, heads, max(rows, 1), groups, batch),
        (stride("head", heads), stride("seq", rows), stride("head", groups, heads),
         stride("batch", batch)),
        (columns, box_heads, box_rows // box_heads, 1, 1),
        swizzle=config.forward().swizzle_bytes(),
    )  # fmt: skip


def _packed_heads(config: HopperServeKernelConfig, fields: Fields) -> int:
    return config.packed_heads(int(fields["n_heads_q"]), int(fields["n_heads_kv"]))


def _pages(config: HopperServeKernelConfig, fields: Fields) -> tuple[int, int, int, int]:
    """Where the pages of each sequence stand, one sequence's from the next, the keys of a page, and
    of one copy out of it."""
    if not config.paged:
        return 0, 0, 0, 0
    if not fields["block_table"]:
        return int(fields["cache_batch_idx"]), 1, 2**31 - 1, config.block_n
    keys = int(fields["page_size"])
    return int(fields["block_table"]), int(fields["table_stride"]), keys, config.part_rows(keys)


def _soft_cap(fields: Fields) -> tuple[float, ...]:
    """The limit of a score's square, and what belongs to the cap and to the softmax multiplied into
    the polynomial."""
    if not fields["softcap"]:
        return (0.0,) * (1 + len(_TANH_RATIO))
    unit = fields["softmax_scale"] / fields["softcap"]
    square = unit * unit
    factors, limit, power = [], 1.0, fields["softmax_scale"] * math.log2(math.e)
    for coefficient, negligible in zip(_TANH_RATIO, _NEGLIGIBLE, strict=True):
        if abs(coefficient * power) > _LARGEST:
            return (-1.0, *(0.0 for _ in _TANH_RATIO))
        if abs(coefficient * power) < _SMALLEST:
            limit = negligible
            break
        factors.append(coefficient * power)
        power *= square
    padding = (0.0 for _ in range(len(_TANH_RATIO) - len(factors)))
    return (min(limit / square, _LARGEST), *factors, *padding)


def _tiles_per_head(config: HopperServeKernelConfig, fields: Fields) -> int:
    rows = config.tile_queries(int(fields["n_heads_q"]), int(fields["n_heads_kv"]))
    batch = int(fields["batch"])
    if fields["cu_seqlens_q"]:
        return int(fields["n_rows"]) // rows + batch
    return -(-int(fields["seqlen_q"]) // rows) * batch


def _heads_per_section(config: HopperServeKernelConfig, fields: Fields) -> int:
    """By the average sequence."""
    keys = int(fields["seqlen_k"])
    if fields["cu_seqlens_k"]:
        keys //= int(fields["batch"])
    heads = config.heads_of_tiles(int(fields["n_heads_q"]), int(fields["n_heads_kv"]))
    of_kv_head = heads // int(fields["n_heads_kv"])
    if fields["window_left"] == fields["window_right"] == NO_WINDOW:
        return of_kv_head  # tiles need no order
    kv_head_bytes = keys * (config.d_head + config.d_v()) * config.dtype.bytes
    fitting = heads_per_section(kv_head_bytes, of_kv_head, heads)
    if fitting < of_kv_head:
        return fitting
    return _even_section(fitting // of_kv_head, heads // of_kv_head) * of_kv_head


def _even_section(n: int, of: int) -> int:
    """KV heads of a section, if `n` fit L2: a small last one would have long tiles, late."""
    if of % n == 0:
        return n
    sections = -(-of // ((5 * n + 3) // 4))
    return -(-of // sections)
