"""The Hopper family's kernels whose tiles have the rows of all heads that share a KV head; the
emulator runs them, whatever the batch is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import flash_attention
from flash_helpers.base.dtypes import DType
from flash_helpers.check.serving import ServeRule
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.sm90_serve.config import HopperServeKernelConfig
from flash_helpers.kernels.sm90_serve.sets import get_hopper_serve_kernel_configs
from tests.serving.packing import rows_of
from tests.serving.problems import EVERYTHING, NAN, Batch, ints, same_bits, stacked
from tests.serving.schedules import no_schedule_matters

CAUSAL = ServeRule(causal=True)
SLOW = pytest.mark.slow
CONFIGS = [c for c in get_hopper_serve_kernel_configs() if c.pack_gqa]
SOME = [
    c for c in CONFIGS
    if (c.dtype is DType.BF16, c.paged) == ((False, True) if c.d_head % 128 else (True, False))
]  # fmt: skip


@pytest.fixture(autouse=True)
def _packs(launched: list[KernelConfig]) -> Iterator[None]:
    """Every call with several heads for a KV head is for these kernels."""
    with rows_of("all heads"):
        yield
    assert launched
    assert all(isinstance(c, HopperServeKernelConfig) and c.pack_gqa for c in launched)


@pytest.mark.parametrize(
    "config",
    [
        # A head dimension has one of its kernels in turn; all in test-all.
        pytest.param(c, id=str(c), marks=() if c in SOME else SLOW)
        for c in CONFIGS
    ],
)
def test_everything_at_once(config: HopperServeKernelConfig) -> None:
    batch = Batch(
        [70, 0, 3, 130], [200, 65, 300, 150], EVERYTHING, heads=8, kv_heads=2, d=config.d_head,
        dtype=config.dtype.to_torch_dtype(), leftpad=[160, 0, 90, 20], sinks=torch.randn(8),
    )  # fmt: skip
    batch.check(batch.packed_over_pages(16) if config.paged else batch.packed())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("group", [2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 33, 64])
def test_heads_of_a_group(group: int, causal: bool) -> None:
    """Whole and broken groups of rows: 64 of them, or as many as are whole queries. NaN in rows of
    q around the sequences, and in those of no query."""
    kv_heads = 1 if group > 8 else 2
    lengths = [1, 40, 0, 4, 2, 67] if group <= 8 else [1, 5, 0, 2, 9]
    batch = Batch(
        lengths, [130, 90, 7, 260, 0, 67][: len(lengths)], ServeRule(causal=causal),
        heads=group * kv_heads,
        kv_heads=kv_heads, sinks=torch.linspace(-2.0, 2.0, group * kv_heads),
    )  # fmt: skip
    batch.check(batch.packed())


@pytest.mark.parametrize("queries", [1, 2, 4, 7, 64, 130])
@pytest.mark.parametrize("group", [3, 4, 8])
def test_new_tokens(queries: int, group: int) -> None:
    """As many queries each, with a cache for each sequence, out of pages of 16 and of 24 keys."""
    batch = Batch(
        [queries] * 3, [300, 131, queries], CAUSAL, heads=2 * group, leftpad=[0, 9, 0]
    )  # fmt: skip
    found = batch.cached(310)
    batch.check(found)
    assert same_bits(found, batch.paged(16)) and same_bits(found, batch.paged(24))


@pytest.mark.parametrize(
    "rule",
    [
        ServeRule(window=(9, 0)),
        ServeRule(window=(-1, 63)),
        ServeRule(window=(0, 0)),
        ServeRule(window=(300, 5)),
        ServeRule(causal=True, window=(150, -1), softcap=3.0, scale=0.2),
    ],
    ids=str,
)
@pytest.mark.parametrize("group", [5, 8])
def test_windows_and_soft_caps(rule: ServeRule, group: int) -> None:
    batch = Batch(
        [260, 1, 40], [600, 350, 300], rule, heads=group, kv_heads=1, leftpad=[30, 0, 140],
        sinks=torch.linspace(-2.0, 1.0, group),
    )  # fmt: skip
    batch.check(batch.packed())


@pytest.mark.parametrize("queries", [[130, *[1] * 9], [*[1] * 9, 130], [1, 4, 64, 1, 3, 200]])
def test_a_chunk_and_decodes(queries: list[int]) -> None:
    """Tiles of few and of many rows in turn, each once; and on fewer multiprocessors than tiles."""
    keys = [n + 50 * i for i, n in enumerate(queries)]
    batch = Batch(queries, keys, CAUSAL, heads=8, kv_heads=2, d=128)
    batch.check(batch.packed_over_pages(16))


@pytest.mark.parametrize("rule", [CAUSAL, ServeRule(window=(40, 3))], ids=str)
@pytest.mark.parametrize("group", [3, 8])
def test_narrower_values(rule: ServeRule, group: int) -> None:
    batch = Batch(
        [33, 0, 65], [100, 7, 200], rule, heads=group, kv_heads=1, d=192, d_v=128
    )  # fmt: skip
    results = batch.packed()
    batch.check(results)
    assert same_bits(results, batch.packed_over_pages(64))


@pytest.mark.parametrize("group", [3, 4, 32])
def test_rows_that_are_not_used_stay(group: int) -> None:
    """Of queries behind a length, and between rows of `out`."""
    batch = Batch([70, 40], [90, 90], heads=group, kv_heads=1)
    q, starts = stacked(batch.q)
    k, key_starts = stacked(batch.k)
    v, _ = stacked(batch.v)
    wide = torch.full((*q.shape[:2], 72), 7.0, dtype=q.dtype)
    out = wide[..., :64]
    used: dict[str, Any] = {"seqused_q": ints([50, 17]), "seqused_k": ints([80, 0])}
    flash_attention.flash_attn_varlen_func(q, k, v, starts, key_starts, out=out, **used)
    written = torch.zeros(wide.shape, dtype=torch.bool)
    written[3:53, :, :64] = written[73:90, :, :64] = True
    assert (wide[~written] == 7.0).all() and torch.isfinite(wide[written]).all()
    assert not wide[73:90, :, :64].any()


@pytest.mark.parametrize("heads_first", [False, True])
def test_strides_of_queries(heads_first: bool) -> None:
    """Queries and outputs whose heads lie apart, and heads between others."""
    batch = Batch([40] * 3, [90, 41, 300], CAUSAL, heads=6)
    expected = batch.cached(300)
    q = torch.stack(batch.q)
    if heads_first:
        q = q.transpose(1, 2).contiguous().transpose(1, 2)
    else:
        q = torch.full((3, 42, 9, 72), NAN, dtype=q.dtype)[:, 1:-1, 2:-1, :64].copy_(q)
    caches = [torch.full((3, 300, 2, 64), NAN, dtype=q.dtype) for _ in range(2)]
    for cache, rows in zip(caches, (batch.k, batch.v), strict=True):
        for i, x in enumerate(rows):
            cache[i, : len(x)] = x
    found: Any = flash_attention.flash_attn_with_kvcache(
        q,
        caches[0],
        caches[1],
        cache_seqlens=ints(batch.keys),
        causal=True,
        return_softmax_lse=True,
    )
    assert same_bits(zip(*found, strict=True), expected)


@pytest.mark.parametrize("group", [3, 8])
def test_a_sequence_has_the_same_bits_in_every_batch(group: int) -> None:
    """Whatever the other sequences' queries and values are."""
    batch = Batch([17, 90, 3], [300, 300, 270], CAUSAL, heads=group, kv_heads=1, d=128)
    together = batch.packed()
    for i in range(3):
        alone = Batch([batch.queries[i]], [batch.keys[i]], CAUSAL, heads=group, kv_heads=1, d=128)
        alone.q, alone.k, alone.v = [batch.q[i]], [batch.k[i]], [batch.v[i]]
        assert same_bits(alone.packed(), together[i : i + 1])
    for tensors in (batch.q, batch.k, batch.v):
        tensors[1][:] = NAN
    assert same_bits(batch.packed()[::2], together[::2])


@pytest.mark.parametrize("higher", [[640], [640, 512, 384], [384, 300]])
def test_large_scores(higher: list[int]) -> None:
    batch = Batch([20], [1000], ServeRule(window=(700, 0)), heads=5, kv_heads=1, d=128)
    batch.q[0][..., 0] = 4.0
    for i, key in enumerate(higher):
        batch.k[0][key, :, 0] = 32.0 * (i + 1)
    batch.check(batch.packed())


def test_many_empty_sequences() -> None:
    lengths = [800 if i in (0, 35, 69) else 0 for i in range(70)]
    batch = Batch(lengths, [5] * 70, CAUSAL, heads=2, kv_heads=1)
    batch.check(batch.packed())


@pytest.mark.parametrize(("d", "group"), [(64, 3), (128, 8), (256, 5)])
def test_the_schedule_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, d: int, group: int
) -> None:  # fmt: skip
    batch = Batch([40, 9, 1], [300, 500, 64], CAUSAL, heads=group, kv_heads=1, d=d)
    call = lambda: itertools.chain(*batch.packed_over_pages(16))  # noqa: E731
    no_schedule_matters(call, batch.seed, monkeypatch)
