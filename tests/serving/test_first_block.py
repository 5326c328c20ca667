"""The first block of a share, copied before any length is known: from where it lies if all
sequences have as many keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flash_attention.serving import splits
from flash_helpers.check.serving import ServeRule
from flash_helpers.emulator import LaunchReport
from flash_helpers.kernels.serve_config import PAIR_HEADS
from tests.emulator.work import Work
from tests.serving.problems import NAN, WILD, Batch, ints

CAUSAL = ServeRule(causal=True)
KV_HEADS, GROUPS = 8, 4  # of thread blocks: one for each KV head
CHUNK = 8  # elements of a copy


def batch_of(keys: list[int], queries: int = 1, **keywords: Any) -> Batch:
    given: dict[str, Any] = {"rule": CAUSAL, "heads": 16, "kv_heads": KV_HEADS, "d": 128}
    return Batch([queries] * len(keys), keys, **given | keywords)


# A block has 64 keys (wide heads), 128 or 256 (64 elements). With each: rows of the cache, and of
# how many groups the first block is copied in vain.
CALLS: dict[str, tuple[Batch, int, int]] = {
    "right": (batch_of([300] * 4), 300, 0),
    "right, two sequences each": (batch_of([300] * 8), 512, 0),
    "right, two blocks each": (batch_of([129] * 4), 129, 0),
    "right, four queries": (batch_of([300] * 4, queries=4), 300, 0),
    "right, two tiles": (batch_of([300] * 4, queries=2, heads=264), 300, 0),
    "right, wide heads": (batch_of([300] * 4, d=256), 300, 0),
    "right, 64 elements": (batch_of([600] * 4, d=64), 600, 0),
    "right, a head that is filled up": (batch_of([300] * 4, d=120, d_v=72), 300, 0),
    "right, 40 sequences": (batch_of([130] * 40), 130, 0),
    "lengths that differ": (batch_of([300, 700, 129, 400]), 700, 3),
    "a share that begins with another sequence": (
        batch_of([160, 160, 320, 640, 320, 320, 320, 320]),
        640,
        1,
    ),
    "shares that have nothing": (batch_of([200, 0, 0, 0]), 300, 4),
    "one block of keys, and less": (batch_of([128, 128, 128, 127]), 300, 4),
    "a cache of one block": (batch_of([128] * 4), 128, 0),
    "shares that end within sequences": (batch_of([300] * 5), 300, 0),
    "fewer sequences than shares": (batch_of([700] * 2), 700, 0),
    "padding": (batch_of([300] * 4, leftpad=[0, 7, 0, 150]), 300, 0),
    "a window": (batch_of([300] * 4, rule=ServeRule(causal=True, window=(150, 0))), 300, 0),
}


@pytest.fixture
def reports(
    reports: list[tuple[Any, LaunchReport]], monkeypatch: pytest.MonkeyPatch
) -> list[tuple[Any, LaunchReport]]:
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", GROUPS * KV_HEADS)
    return reports


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if i % 2 else ()) for i, n in enumerate(CALLS)],
)
def test_it_is_copied_once_if_it_is_right(
    reports: list[tuple[Any, LaunchReport]], name: str
) -> None:
    """And in vain if it is not: then nothing of it is seen. Keys behind a sequence's end are NaN.
    Where each sequence says which page it has, nothing is copied before; with tables never in
    vain, since lengths are looked at."""
    batch, capacity, in_vain = CALLS[name]
    batch.check(batch.cached(capacity))
    batch.check(batch.paged(max(batch.keys)))
    batch.check(batch.cached(capacity, cache_batch_idx=ints(list(range(len(batch.keys))))))
    (config, cached), (_, paged), (_, needed) = reports
    assert config.shares_keys() and all(other == config for other, _ in reports)
    wanted = Work.done(needed).async_copies
    assert Work.done(paged).async_copies == wanted
    block = 2 * config.B_c * config.d_head // CHUNK
    assert Work.done(cached).async_copies == wanted + in_vain * KV_HEADS * block


def test_keys_that_do_not_begin_with_their_sequences_page(
    reports: list[tuple[Any, LaunchReport]],
) -> None:
    batch = batch_of([300] * 4)
    batch.check(batch.packed())
    caches = [torch.full((9, 300, KV_HEADS, 128), NAN, dtype=batch.dtype) for _ in range(2)]
    order = [7, 3, 0, 5]
    for cache, rows in zip(caches, (batch.k, batch.v), strict=True):
        cache[order] = torch.stack(rows)
    batch.check(batch.with_cache(*caches, cache_batch_idx=ints(order)))
    assert len(reports) == 2 and all(config.shares_keys() for config, _ in reports)


def test_pages_behind_the_end_are_not_looked_at(reports: list[tuple[Any, LaunchReport]]) -> None:
    """Tables have places for more keys than a block, and wild entries there."""
    batch = batch_of([100] * 4)
    k, v, table = batch.pages(16)
    table = torch.nn.functional.pad(table, (0, 4), value=WILD[-1])
    batch.check(batch.with_cache(k, v, block_table=table))
    ((config, _),) = reports
    assert config.B_c == 128


@pytest.mark.parametrize("kv_heads", [8, 3])
@pytest.mark.parametrize("keys", [[70], [130, 9, 64, 200, 100]])
def test_pairs(
    monkeypatch: pytest.MonkeyPatch,
    reports: list[tuple[Any, LaunchReport]],
    kv_heads: int,
    keys: list[int],
) -> None:
    """Two thread blocks on a multiprocessor: two heads of a share follow each other in the launch,
    if there are as many, then those of the next share. Of 66 thread blocks two are left over with
    eight heads. Lengths that differ leave parts."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 33)
    n_sequences = -(-PAIR_HEADS // kv_heads // len(keys)) * len(keys)
    lengths = keys * (n_sequences // len(keys))
    batch = batch_of(lengths, heads=kv_heads, kv_heads=kv_heads)
    found = batch.cached(max(lengths))
    batch.check(found)
    for (o, _), (again, _) in zip(found, batch.paged(16), strict=True):
        assert torch.equal(o, again)
    assert len(reports) == 2 and all(c.min_blocks_per_sm() == 2 for c, _ in reports)
