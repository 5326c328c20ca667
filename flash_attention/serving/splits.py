"""Into how many parts the keys of a serving call are cut."""

from dataclasses import replace

import torch

from flash_helpers.kernels.architecture import EMULATED_MULTIPROCESSORS
from flash_helpers.kernels.contract import Variant
from flash_helpers.kernels.serve_config import FEW_HEADS, ServeKernelConfig, ServeSizes

from .options import MAX_SPLITS

# Blocks of keys that a split has at least: fewer would cost more to merge than they save.
_LEAST_BLOCKS = 4
# Parts of each tile from which on a launch that merges them takes less time than the few thread
# blocks that would come last.
_MANY_PARTS = 32
# Rows of the average sequence up to which that is asked: not more than tell of a call.
_MOST_ROWS = 256
# Blocks of keys that a part then has at least: of as many parts, and of more.
_LEAST_BLOCKS_OF_MANY = 2
_LEAST_BLOCKS_OF_MORE = 8


def with_splits(
    config: ServeKernelConfig, sizes: ServeSizes, given: int, keys_each: int, device: torch.device
) -> ServeSizes:
    """`sizes` with the splits of each tile (`given`, if not 0), or with the thread blocks that
    share all keys. `keys_each`: that a sequence can have, by the tensors' shapes."""
    if given or not config.can_split():
        return replace(sizes, n_splits=given or 1)
    room = _multiprocessors(device) * config.min_blocks_per_sm()
    if not config.shares(sizes):
        return replace(sizes, n_splits=_splits(config, sizes, room, keys_each))
    parts = _parts(config, sizes, room, keys_each)
    return replace(sizes, n_splits=parts or room, is_fixed=parts > 0)


def _splits(config: ServeKernelConfig, sizes: ServeSizes, room: int, keys_each: int) -> int:
    """As many as fill the GPU's multiprocessors once; fewer where those would leave the last
    without a block of the longest sequence's keys."""
    rows, keys = config.blocks()
    group = sizes.n_heads_q // sizes.n_heads_kv
    tiles = max(sizes.batch, -(-sizes.n_rows * group // rows)) * sizes.n_heads_kv
    by_keys = -(-keys_each // (_LEAST_BLOCKS * keys))
    most = max(1, min(room // tiles, by_keys, MAX_SPLITS))
    blocks = -(-keys_each // keys)
    return max(1, -(-blocks // -(-max(blocks, 1) // most)))


def _parts(config: ServeKernelConfig, sizes: ServeSizes, room: int, keys_each: int) -> int:
    """Of each of few tiles, where kernels that share all keys can merge parts by another launch;
    else 0. Of several sequences of which one is long, a tile gets no more than its own parts.

    It asks nothing that the short way does not (ServingQuery::read_sizes): it would take a call
    for one like it."""
    heads = sizes.batch * sizes.n_heads_kv
    rows = -(-sizes.n_rows * sizes.n_heads_q // (sizes.n_heads_kv * sizes.batch))
    if Variant.COMBINE not in config.variants() or heads > FEW_HEADS or rows >= _MOST_ROWS:
        return 0
    room //= -(-rows // config.blocks()[0]) * heads
    if room < _MANY_PARTS:
        return 0
    many, more = (
        -(-keys_each // (least * config.blocks()[1]))
        for least in (_LEAST_BLOCKS_OF_MANY, _LEAST_BLOCKS_OF_MORE)
    )
    return max(1, min(room, max(more, min(many, _MANY_PARTS)), MAX_SPLITS))


def _multiprocessors(device: torch.device) -> int:
    if device.type == "cpu":
        return EMULATED_MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count
