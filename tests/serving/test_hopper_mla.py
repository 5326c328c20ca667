"""MLA in the Hopper family's kernels, which the emulator runs: tiles of 64 rows, TMA and wgmma."""

from __future__ import annotations

import itertools

import pytest
import torch

from flash_attention.serving import splits
from flash_helpers.check.serving import ServeRule
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.sm90_serve_mla.config import HopperMlaKernelConfig
from flash_helpers.kernels.sm90_serve_mla.sets import get_hopper_mla_kernel_configs
from tests.serving.latent import VALUE, LatentBatch
from tests.serving.problems import EVERYTHING, NAN, ints, same_bits
from tests.serving.schedules import no_schedule_matters
from tests.serving.scratch import poisoned_scratch

CAUSAL = ServeRule(causal=True)


@pytest.fixture(autouse=True)
def _hopper(hopper: None) -> None:
    pass


@pytest.mark.parametrize("config", get_hopper_mla_kernel_configs(), ids=str)
@pytest.mark.parametrize("n_blocks", [2, 9])
def test_everything_at_once(
    monkeypatch: pytest.MonkeyPatch, config: KernelConfig, n_blocks: int
) -> None:
    """With pieces of tiles: more tiles than thread blocks, and more thread blocks than tiles; a
    part-filled tile, and a sequence whose first keys are hidden."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", n_blocks)
    batch = LatentBatch(
        [1, 3, 1], [200, 130, 19], EVERYTHING, heads=72, dtype=config.dtype.to_torch_dtype(),
        leftpad=[160, 0, 0], sinks=torch.randn(72),
    )  # fmt: skip
    batch.check(batch.packed())


@pytest.mark.parametrize(
    ("heads", "queries"), [(64, 1), (71, 1), (128, 1), (64, 2), (8, 16), (20, 4)]
)
def test_heads_and_queries(heads: int, queries: int) -> None:
    """Rows of a tile are heads of one query or of several; several tiles read the same keys."""
    batch = LatentBatch([queries, queries], [140, queries], CAUSAL, heads=heads)
    batch.check(batch.paged(64))


@pytest.mark.parametrize("keys", [0, 1, 31, 63, 64, 65, 128, 129, 300])
def test_lengths_around_blocks(keys: int) -> None:
    batch = LatentBatch([1], [keys], heads=64)
    batch.check(batch.cached(max(keys, 1)))


def test_layouts_have_the_same_bits() -> None:
    """Pages of sizes that divide a block, are whole blocks or neither; a cache, one allocation or
    two."""
    found = []
    for separate in (False, True):
        batch = LatentBatch([1, 1], [150, 33], heads=64, separate=separate)
        found += [batch.cached(160), *(batch.paged(page) for page in (8, 24, 64, 128))]
    batch.check(found[0])
    assert all(same_bits(found[0], other) for other in found[1:])


def test_a_cache_by_an_index() -> None:
    batch = LatentBatch([1, 1], [70, 20], heads=64)
    cache = batch.k[0].new_full((4, 90, 1, batch.d), NAN)
    for i, place in enumerate((3, 1)):
        cache[place, : batch.keys[i]] = batch.k[i]
    batch.check(batch.with_cache(cache, cache[..., :VALUE], cache_batch_idx=ints([3, 1])))


def test_several_kv_heads() -> None:
    batch = LatentBatch([1, 1], [70, 9], heads=128, kv_heads=2)
    batch.check(batch.paged(8))


@pytest.mark.parametrize("key", [1, 40, 63, 100])
def test_one_key_that_outweighs_all(key: int) -> None:
    """e^24 times the weight of others: in the last block, all that was accumulated vanishes."""
    batch = LatentBatch([1], [128], heads=64)
    batch.k[0][key] = batch.q[0][0, :1]
    batch.check(batch.cached(128))


def test_a_maximum_that_grows_with_every_block() -> None:
    """Of some rows alone: what was accumulated of them is brought to it in both groups."""
    batch = LatentBatch([1], [320], heads=64)
    for block in range(5):
        batch.k[0][64 * block + 9] = batch.q[0][0, 7 * block : 7 * block + 1] * (0.2 + 0.1 * block)
    batch.check(batch.cached(320))


@pytest.mark.parametrize("n_blocks", [1, 5, 20])
def test_any_number_of_thread_blocks(monkeypatch: pytest.MonkeyPatch, n_blocks: int) -> None:
    """One tile of many parts; many tiles of a share, with sequences without keys or queries."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", n_blocks)
    long = LatentBatch([1], [700], heads=64, sinks=torch.randn(64))
    long.check(long.packed())
    mixed = LatentBatch([1, 0, 2, 1] * 2, [i * 37 % 150 for i in range(8)], CAUSAL, heads=88)
    mixed.check(mixed.packed())


@pytest.mark.parametrize("n_blocks", [1, 2, 5, 9, 20])
def test_tiles_abreast(monkeypatch: pytest.MonkeyPatch, n_blocks: int) -> None:
    """Thread blocks with the same keys and another tile each, some of which are left over: of a
    tile's parts, of many that are merged by groups, and of several KV heads and sequences."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", n_blocks)
    long = LatentBatch([1] * 11, [700] + [9] * 10, heads=128, sinks=torch.randn(128))
    long.check(long.paged(64))
    mixed = LatentBatch(
        [3] * 6, [130, 3, 70, 40, 9, 300], ServeRule(causal=True, window=(90, 0)), heads=100,
        kv_heads=2,
    )  # fmt: skip
    mixed.check(mixed.paged(16))


def test_tiles_abreast_read_the_same_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both tiles of three sequences have the same queries. Thread blocks 0 and 1 end with half of
    the second one's keys, 2 and 3 begin with the other half, and the last has nothing."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 5)
    memory = poisoned_scratch(monkeypatch)
    batch = LatentBatch([1] * 3, [256] * 3, heads=128)
    for q in batch.q:
        q[:, 64:] = q[:, :64]
    batch.check(batch.paged(64))
    (_, first), (_, second), (third, _), (fourth, _), (fifth, _) = memory["lse_partial"].view(
        -1, 2, 64
    )[:5]
    assert torch.equal(first, second) and torch.equal(third, fourth)
    assert not torch.equal(first, third) and fifth.isnan().all()


def test_a_row_without_a_key_beside_nan() -> None:
    """In a key that others see, whose values the rows without a key meet with weights of 0."""
    batch = LatentBatch([20], [4], CAUSAL, heads=5)
    batch.k[0][1] = NAN
    ((o, lse),) = batch.packed()
    assert not o[:16].any() and (lse[:, :16] == -torch.inf).all() and o[17:].isnan().all()


@pytest.mark.parametrize("rule", [CAUSAL, ServeRule(window=(9, 0)), ServeRule(window=(70, 3))],
                         ids=str)  # fmt: skip
def test_what_nobody_sees_has_no_effect(rule: ServeRule) -> None:
    """NaN in every such key, also between those of one block that are seen and its ends; the table
    ends with the last sequence's pages."""
    batch = LatentBatch([2, 2], [33, 190], rule, heads=64, leftpad=[0, 5])
    for page in (16, 24):
        batch.check(batch.paged(page))
    batch.check(batch.cached(200))


def test_a_soft_cap_on_large_scores() -> None:
    batch = LatentBatch([4], [70], ServeRule(causal=True, softcap=50.0, scale=1.0), heads=16)
    batch.q[0] *= 16
    batch.check(batch.packed())


@pytest.mark.parametrize("num_splits", [1, 3])
def test_a_sequence_has_the_same_bits_in_every_batch(num_splits: int) -> None:
    """With splits, some of them without keys, and sinks; alone, and with others."""
    sinks = torch.randn(64)
    batch = LatentBatch([1, 2, 0, 1], [300, 130, 9, 7], CAUSAL, heads=64, sinks=sinks)
    together = batch.packed(num_splits=num_splits)
    batch.check(together)
    for i in (0, 1, 3):
        alone = LatentBatch([batch.queries[i]], [batch.keys[i]], CAUSAL, heads=64, sinks=sinks)
        alone.q, alone.k, alone.v = [batch.q[i]], [batch.k[i]], [batch.v[i]]
        assert same_bits(alone.paged(64, num_splits=num_splits), together[i : i + 1])


def test_splits_of_tiles_that_share_keys() -> None:
    """Each is of one tile, wherever the others are."""
    batch = LatentBatch([1, 1], [300, 70], heads=128)
    batch.check(batch.paged(64, num_splits=3))


def test_new_keys_are_appended_and_seen() -> None:
    batch = LatentBatch([1, 1], [20, 65], heads=64)
    k, v, table = batch.pages(16)
    new = torch.stack([keys[-1:] for keys in batch.k])
    for i, n in enumerate(batch.keys):
        k[int(table[i, (n - 1) // 16]), (n - 1) % 16] = NAN
    o, lse = batch.attend(
        torch.stack(batch.q), k, v, k=new[..., VALUE:], v=new[..., :VALUE], block_table=table,
        cache_seqlens=ints([n - 1 for n in batch.keys]),
    )  # fmt: skip
    batch.check(list(zip(o, lse, strict=True)))


def test_the_schedule_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever warp runs first, and whether copies land early or late."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 2)
    batch = LatentBatch([1, 1], [210, 70], heads=64)
    no_schedule_matters(lambda: itertools.chain(*batch.paged(16)), batch.seed, monkeypatch)


def test_few_rows_go_to_another_family(launched: list[KernelConfig]) -> None:
    batch = LatentBatch([1], [20], heads=16)
    batch.check(batch.paged(16))
    other = LatentBatch([1], [20], heads=64)
    other.check(other.paged(4))
    assert not any(isinstance(config, HopperMlaKernelConfig) for config in launched)
    launched.clear()
    wide = LatentBatch([4], [20], heads=16)
    wide.check(wide.paged(16))
