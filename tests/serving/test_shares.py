"""Calls of few rows, whose keys all thread blocks share: pieces that begin and end anywhere."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from flash_attention.serving import launch, scratch, splits
from flash_helpers.base.dtypes import DType
from flash_helpers.check.serving import ServeRule
from flash_helpers.kernels.architecture import EMULATED_MULTIPROCESSORS
from flash_helpers.kernels.serve_config import CUT_HEADS, FEW_KEYS, MOST_UNITS, ServeSizes
from tests.serving.problems import FULL, Batch, same_bits
from tests.serving.scratch import poisoned_scratch

CAUSAL = ServeRule(causal=True)
LENGTHS = [i * 7 % 50 for i in range(40)]
BATCHES = {
    "one tile of many parts": Batch([1], [1400], heads=32, kv_heads=1),
    "large tiles, one without keys": Batch([4, 4, 4], [700, 3, 0], CAUSAL, heads=8, kv_heads=1),
    "more sequences than lanes": Batch([1] * 40, LENGTHS, heads=8),
    "more sequences than threads": Batch([1] * 300, [i * 7 % 37 for i in range(300)], heads=2),
    "a window behind padding": Batch(
        [2, 0, 5], [300, 100, 211], ServeRule(window=(60, 3)), heads=6, leftpad=[100, 0, 20]
    ),
    "sinks": Batch([3], [900], CAUSAL, heads=64, sinks=torch.randn(64)),
    "two tiles for a sequence": Batch([2], [500], heads=71, kv_heads=1),
}


@pytest.mark.parametrize("n_blocks", [1, 2, 5, 13, 40])
@pytest.mark.parametrize("name", BATCHES)
def test_any_number_of_thread_blocks(
    monkeypatch: pytest.MonkeyPatch, name: str, n_blocks: int
) -> None:
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", n_blocks)
    batch = BATCHES[name]
    batch.check(batch.packed())


def test_what_is_counted_is_zero_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call finds it so; and has the same bits."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 40)
    memory: dict[str, torch.Tensor] = {}
    real = scratch.memory

    def kept(words: dict[str, int], device: torch.device) -> dict[str, torch.Tensor]:
        if not memory:
            memory.update(real(words, device))
        return memory

    monkeypatch.setattr(scratch, "memory", kept)
    batch = BATCHES["one tile of many parts"]
    first = batch.packed()
    assert not memory["arrivals"].any() and memory["lse_partial"].any()
    assert same_bits(first, batch.packed())


def test_many_parts_are_merged_by_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not all by one thread block, which would read for longer than all computed: the second
    half of the log-sum-exps is the groups'."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 40)
    memory = poisoned_scratch(monkeypatch)
    BATCHES["one tile of many parts"].packed()
    of_groups = memory["lse_partial"][len(memory["lse_partial"]) // 2 :]
    assert 0 < (~of_groups.isnan()).sum() < len(of_groups) / 2


def test_shares_end_with_tiles_where_little_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """35 tiles of 16 units among 12 thread blocks are 47 units each: with 48 nothing is merged."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 12)
    memory = poisoned_scratch(monkeypatch)
    batch = Batch([1] * 5, [512] * 5, heads=7, kv_heads=7)
    batch.check(batch.packed())
    assert memory["lse_partial"].isnan().all()


def test_tiles_end_with_shares_where_little_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 tiles of 66 units among 33 thread blocks are 32 units each: with 33 a tile has two parts,
    each from its thread block's first key on, and the last has nothing. Not so where a tile has
    other units: nothing would be gained for all."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 33)
    memory = poisoned_scratch(monkeypatch)
    for lengths in ([2112] * 16, [2112, 2080] * 8):
        batch = Batch([1] * 16, lengths, heads=1, kv_heads=1, d=64)
        batch.check(batch.packed())
        parts = ~memory["lse_partial"].view(2, 33, 2, -1).isnan().all(dim=-1)[0]
        is_even = lengths[0] == lengths[1]
        assert parts[:32, 0].all() and parts[32].any() != is_even
        assert parts[:, 1].any() != is_even


@pytest.mark.parametrize(("heads", "side_by_side"), [(8, True), (7, False)])
def test_heads_are_read_side_by_side(
    monkeypatch: pytest.MonkeyPatch, heads: int, side_by_side: bool
) -> None:
    """33 thread blocks are 4 for each of 8 heads: of the same keys, whose scores are 100 times the
    number of their head. Of 7 heads 5 thread blocks would have nothing to do."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 33)
    memory = poisoned_scratch(monkeypatch)
    batch = Batch([1] * 3, [900, 50, 410], FULL, heads=heads, kv_heads=heads)
    for q, k in zip(batch.q, batch.k, strict=True):
        q.fill_(1.0), k.copy_(100 / math.sqrt(batch.d) * torch.arange(heads).half()[:, None])
    batch.check(batch.packed())
    parts = memory["lse_partial"].view(2, 33, -1)[0]  # of a thread block, up to two of 16 rows
    left = [{round(float(x) / 100) for x in part[~part.isnan()]} for part in parts]
    assert all(found <= {i % heads} for i, found in enumerate(left)) == side_by_side


@pytest.mark.parametrize(
    ("queries", "heads", "rows"), [(1, 8, 16), (4, 8, 16), (4, 16, 32), (16, 8, 64), (16, 71, 64)]
)
def test_the_smallest_tile_that_holds_the_rows(
    monkeypatch: pytest.MonkeyPatch, queries: int, heads: int, rows: int
) -> None:
    chosen = []

    def choose(call: launch.Call) -> object:
        chosen.append(real(call))
        return chosen[-1]

    real = launch.choose
    monkeypatch.setattr(launch, "choose", choose)
    batch = Batch([queries], [queries], FULL, heads=heads, kv_heads=1 if heads == 71 else 2)
    places = FEW_KEYS + 1  # of few keys there may be two tiles
    batch.cached(places)
    batch.cached(places, num_splits=1)
    shared, fixed = chosen
    assert shared.shares_keys() and shared.blocks()[0] == rows
    assert not fixed.shares_keys()


def tile_of(batch: int, queries: int, keys: int) -> int:
    """Rows of a tile of a call with 64 query heads, 8 KV heads."""
    sizes = ServeSizes(batch, batch * queries, queries, 64, 8, d_head=128, d_v=128)
    return launch.fitting_sizes(sizes, DType.BF16, keys, torch.device("cpu")).blocks()[0]


def test_many_heads_are_served_in_pairs() -> None:
    """From 256 on; not with more than 32 rows, of which there is no such kernel."""
    for batch, queries, n_warps in ((31, 1, 8), (32, 1, 4), (300, 2, 4), (32, 4, 4), (32, 5, 8)):
        sizes = ServeSizes(batch, batch * queries, queries, 64, 8, d_head=128, d_v=128)
        config: Any = launch.fitting_sizes(sizes, DType.BF16, 8192, torch.device("cpu"))
        assert (config.n_warps, config.min_blocks_per_sm()) == (n_warps, 8 // n_warps)
        with_room = splits.with_splits(config, sizes, 0, 8192, torch.device("cpu")).n_splits
        assert with_room == EMULATED_MULTIPROCESSORS * (8 // n_warps)


def test_few_heads_with_few_keys_have_tiles_of_few_rows() -> None:
    """8 heads of 32 rows: 16 tiles, whose parts are merged at once."""
    assert [tile_of(1, n, FEW_KEYS) for n in (1, 2, 3, 4, 5)] == [16, 16, 16, 16, 64]
    assert [tile_of(1, n, FEW_KEYS + 1) for n in (1, 2, 3, 4)] == [16, 16, 32, 32]
    assert CUT_HEADS == 8 and tile_of(2, 4, FEW_KEYS) == 32


def test_calls_that_cannot_be_counted_share_no_keys() -> None:
    """4,096 sequences of 64/8 heads have 49,152 tiles, as is counted on the host: with 43,688 units
    each, one more than 2^31 have."""
    sizes = ServeSizes(4096, 4096, 1, 64, 8, d_head=128, d_v=128)
    device = torch.device("cpu")
    keys = (MOST_UNITS // 49_152 - 2) * 32
    for n, shares in ((keys, True), (keys + 31, True), (keys + 32, False)):
        assert (sizes.most_units(n) <= MOST_UNITS) == shares
        assert launch.fitting_sizes(sizes, DType.BF16, n, device).shares_keys() == shares


def test_two_tiles_of_a_kv_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 21)
    batch = Batch([4], [700], CAUSAL, heads=24, kv_heads=3, sinks=torch.randn(24))
    batch.check(batch.packed())
