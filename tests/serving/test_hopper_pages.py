"""Pages of a cache in the Hopper family's serving kernels, which the emulator runs."""

from __future__ import annotations

import itertools
import mmap
from typing import Any

import pytest
import torch

import flash_attention
from flash_attention.serving import launch
from flash_helpers.base.dtypes import DType
from flash_helpers.check.serving import ServeRule
from flash_helpers.kernels.sm90_serve.config import HopperServeKernelConfig
from flash_helpers.kernels.sm90_serve.sets import get_hopper_serve_kernel_configs
from tests.serving.problems import EVERYTHING, NAN, Batch, ints, same_bits, stacked
from tests.serving.schedules import no_schedule_matters

CAUSAL = ServeRule(causal=True)
SLOW = pytest.mark.slow
CONFIGS = [c for c in get_hopper_serve_kernel_configs() if c.paged and not c.pack_gqa]


@pytest.fixture(autouse=True)
def _hopper(hopper: None) -> None:
    pass


@pytest.mark.parametrize("page", [8, 16, 24, 40, 64, 128, 192, 256])
def test_sizes_of_pages(page: int) -> None:
    """NaN in every key that no query sees, in the rest of pages and in unused ones; wild table
    entries. The bits are those of packed keys."""
    for d, rule in (
        (64, ServeRule(window=(90, 0))),
        (128, CAUSAL),
        (256, ServeRule(window=(99, 5))),
    ):
        batch = Batch([70, 70], [500, 75], rule, heads=2, d=d, leftpad=[0, 20])
        found = batch.paged(page)
        batch.check(found)
        assert same_bits(found, batch.packed())


@pytest.mark.parametrize(
    ("page", "config"),
    [
        # Of each head dimension one type, and one size for each; all in test-all.
        pytest.param(
            page,
            c,
            id=f"{page}-{c}",
            marks=() if (c.dtype is DType.BF16) == (page == 16) == (c.d_head % 128 == 0) else SLOW,
        )
        for page in (16, 256)
        for c in CONFIGS
    ],
)
def test_everything_at_once(
    monkeypatch: pytest.MonkeyPatch, config: HopperServeKernelConfig, page: int
) -> None:
    monkeypatch.setattr(launch, "choose", lambda call: config)
    batch = Batch(
        [70, 0, 190], [400, 65, 150], EVERYTHING, heads=6, d=config.d_head, d_v=config.d_v(),
        dtype=config.dtype.to_torch_dtype(), leftpad=[160, 0, 20], sinks=torch.randn(6),
    )  # fmt: skip
    batch.check(batch.packed_over_pages(page))


@pytest.mark.parametrize(
    "rule", [ServeRule(), CAUSAL, ServeRule(window=(20, 3)), ServeRule(causal=True, softcap=9.0)],
    ids=str,
)  # fmt: skip
def test_lengths(rule: ServeRule) -> None:
    """Sequences of one group's rows, without queries and without keys, among others; lengths from
    cu_seqlens_k, which say nothing of places."""
    batch = Batch([300, 5, 0, 64, 33, 129], [300, 260, 7, 64, 0, 20], rule, heads=2)
    batch.check(batch.packed_over_pages(32))


LAYOUTS = ("heads first", "keys and values in turn", "values beside keys", "rows between pages")


def laid_out(k: torch.Tensor, v: torch.Tensor, layout: str) -> list[torch.Tensor]:
    if layout == "heads first":
        return [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v)]
    if layout == "keys and values in turn":
        return list(torch.stack((k, v), dim=1).unbind(1))
    if layout == "values beside keys":
        both = torch.cat((k, v), dim=-1)
        return [both[..., : k.shape[-1]], both[..., k.shape[-1] :]]
    room = k.new_full((2, len(k), k.shape[1] + 3, *k.shape[2:]), NAN)
    for to, x in zip(room, (k, v), strict=True):
        to[:, 1:-2] = x
    return list(room[:, :, 1:-2])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides(layout: str) -> None:
    batch = Batch([70], [300], CAUSAL)
    k, v, table = batch.pages(48)
    batch.check(batch.with_cache(*laid_out(k, v, layout), block_table=table))


def test_rows_of_a_table_with_any_stride() -> None:
    batch = Batch([70, 40, 64], [300, 41, 128], CAUSAL)
    q, starts = stacked(batch.q)
    k, v, table = batch.pages(16)
    wide = torch.full((3, 3 * table.shape[1]), -1, dtype=torch.int32)
    own = wide[:, 2 : 2 + table.shape[1]]
    own[:] = table
    found: Any = flash_attention.flash_attn_varlen_func(
        q, k, v, starts, None, seqused_k=ints(batch.keys), block_table=own, causal=True
    )
    for (a, b), (o, _) in zip(itertools.pairwise(starts), batch.packed(), strict=True):
        assert torch.equal(found[a:b], o)


def test_sequences_share_pages() -> None:
    batch = Batch([40, 40], [140, 140], CAUSAL)
    for rows in (batch.k, batch.v):
        rows[1][:128] = rows[0][:128]
    k, v, table = batch.pages(64)
    table[1, :2] = table[0, :2]
    batch.check(batch.with_cache(k, v, block_table=table))


def test_far_pages() -> None:
    """A stride between pages of 2^31 elements: memory that exists in its first and last page."""
    batch = Batch([40], [8], heads=1, kv_heads=1)
    memory = torch.frombuffer(mmap.mmap(-1, 2 * (2**31 + 8 * 64)), dtype=torch.float16)
    k = memory.as_strided((2, 8, 1, 64), (2**31, 64, 64, 1))
    k[1] = batch.k[0]
    v = batch.v[0][None]
    batch.check(batch.with_cache(k, v.expand(2, -1, -1, -1), block_table=ints([1])[None]))


@pytest.mark.parametrize("d", [64, 128])
def test_places_in_a_cache(d: int) -> None:
    """cache_batch_idx, and a capacity that fills no block."""
    batch = Batch([70, 70], [200, 75], ServeRule(window=(90, 0)), heads=2, leftpad=[140, 0], d=d)
    caches = [torch.full((4, 211, 2, d), NAN, dtype=torch.float16) for _ in range(2)]
    for cache, rows in zip(caches, (batch.k, batch.v), strict=True):
        for slot, x in zip((3, 1), rows, strict=True):
            cache[slot, : len(x)] = x
    batch.check(batch.with_cache(*caches, cache_batch_idx=ints([3, 1])))


@pytest.mark.parametrize("higher", [[640], [640, 512, 384], [384, 300]])
def test_large_scores(higher: list[int]) -> None:
    batch = Batch([70], [1000], ServeRule(window=(700, 0)), heads=2, kv_heads=1, d=128)
    batch.q[0][..., 0] = 4.0
    for i, key in enumerate(higher):
        batch.k[0][key, :, 0] = 32.0 * (i + 1)
    batch.check(batch.paged(16))


@pytest.mark.parametrize("d", [64, 128, 192])
def test_the_schedule_does_not_matter(monkeypatch: pytest.MonkeyPatch, d: int) -> None:
    batch = Batch([140, 40, 64], [300, 500, 64], CAUSAL, heads=2, d=d)
    call = lambda: itertools.chain(*batch.packed_over_pages(16))  # noqa: E731
    no_schedule_matters(call, batch.seed, monkeypatch)
