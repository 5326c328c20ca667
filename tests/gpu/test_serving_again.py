"""Serving calls like an earlier one on a GPU: which of them go the short way, and that they compute
the same there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import flash_attention
from flash_attention.serving import launch
from flash_helpers.check.serving import ServeRule
from tests.serving.latent import VALUE, LatentBatch
from tests.serving.problems import FULL, Batch, ints, same_bits
from tests.serving.problems import poisoned_memory as filled_with_nan

pytestmark = pytest.mark.gpu

CAUSAL = ServeRule(causal=True)
FUNCTIONS: Any = flash_attention
Results = list[tuple[torch.Tensor, torch.Tensor]]


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    with filled_with_nan():
        yield


def on_gpu(queries: list[int], keys: list[int], rule: ServeRule = FULL, **keywords: Any) -> Batch:
    return Batch(queries, keys, rule, device="cuda", **keywords)


def latent(n: int, **keywords: Any) -> LatentBatch:
    """Of n sequences."""
    keys = [500 + 37 * i for i in range(n)]
    return LatentBatch([1] * n, keys, CAUSAL, device="cuda", **keywords)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[launch.Call]:
    """The calls that do not go the short way. At most the first of a kind: another test may have
    had one like it."""
    found: list[launch.Call] = []

    def checked(call: launch.Call) -> None:
        found.append(call)
        launch.launch(call)

    monkeypatch.setattr("flash_attention.serving.result.launch", checked)
    return found


def cached(batch: Batch) -> Results:
    return batch.cached(2000)


def paged(batch: Batch) -> Results:
    return batch.paged(16)


def test_calls_of_other_sizes_go_the_short_way(full: list[launch.Call]) -> None:
    """Sequences come, go and grow; only the first call of a kind is checked in full. Calls of up to
    CUT_HEADS KV heads are kinds of their own: none of a cache is here."""
    decode = [([1] * n, [500 + 37 * i for i in range(n)]) for n in (6, 7, 5, 40)]
    prompts = [([700, 1, 0, 3000], [900, 5, 7, 3000]), ([300] * 9, [300] * 9), ([64], [4000])]
    longer = [([300] * n, [500 + 370 * i for i in range(n)]) for n in (6, 7, 5)]
    for steps, ways in (
        (decode, (Batch.packed, cached, paged)), (prompts, (Batch.packed,)), (longer, (paged,)),
    ):  # fmt: skip
        for way in ways:
            full.clear()
            for queries, keys in steps:
                for seed in (1, 2):
                    batch = on_gpu(queries, keys, CAUSAL, heads=8, d=128, seed=seed)
                    batch.check(way(batch))
            # Packed rows that belong to no sequence change the average sequence.
            assert len(full) <= (len(steps) if way is Batch.packed else 1), way


def test_the_short_way_has_memory_of_its_own_in_graphs_and_on_streams() -> None:
    batch = on_gpu([1] * 5, [4000, 300, 7, 0, 9000], CAUSAL, heads=8, kv_heads=1, d=128)
    expected = batch.cached(9000)
    streams = [torch.cuda.Stream() for _ in range(3)]  # type: ignore[no-untyped-call]
    found = []
    for _ in range(3):
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                found.append(batch.cached(9000))
    torch.cuda.synchronize()
    assert all(same_bits(expected, others) for others in found)


def test_the_short_way_sees_what_changes_between_calls() -> None:
    batch = on_gpu([1] * 5, [100] * 5, CAUSAL, heads=8, d=64)
    batch.cached(128)
    batch.q[0].requires_grad_()
    with pytest.raises(ValueError, match="requires a gradient"):
        batch.cached(128)
    batch.q[0].requires_grad_(False)
    out = torch.empty(5, 1, 8, 64, device="cuda", dtype=torch.float16)
    for _ in range(2):
        results = batch.cached(128, out=out)
        assert results[0][0].data_ptr() == out.data_ptr()
        batch.check(results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", [torch.Tensor.detach, torch.nn.Parameter])
def test_calls_with_sinks_go_the_short_way(
    full: list[launch.Call], kind: Any, dtype: torch.dtype
) -> None:
    """Other sinks in each call; those in 16 bits are converted."""
    lengths = [700, 1, 1900, 41]
    for way, queries in ((cached, [1] * 4), (paged, [1] * 4), (Batch.packed, lengths)):
        full.clear()
        for seed in range(4):
            sinks = kind(torch.randn(8, device="cuda").to(dtype))
            batch = on_gpu(queries, lengths, CAUSAL, heads=8, d=128, seed=seed, sinks=sinks)
            with torch.no_grad():
                batch.check(way(batch))
        assert len(full) <= 1, way


def test_sinks_that_are_trained_are_seen(full: list[launch.Call]) -> None:
    """A model's own, where somebody asks for gradients; and new values at the same address."""
    sinks = torch.nn.Parameter(torch.zeros(8, device="cuda", dtype=torch.bfloat16))
    batch = on_gpu([1] * 4, [100] * 4, CAUSAL, heads=8, sinks=sinks)
    for _ in range(2):
        with torch.no_grad():
            batch.check(batch.cached(2000))
            sinks.add_(3.0)
            batch.check(batch.cached(2000))
        with pytest.raises(ValueError, match="s_aux requires a gradient"):
            batch.cached(2000)
    assert len(full) <= 1


def test_nothing_waits_for_sinks_that_are_converted() -> None:
    sinks = torch.randn(16, device="cuda").bfloat16()
    batch = on_gpu([1] * 4, [3000, 5, 900, 16000], heads=16, d=128)
    k, v, table = batch.pages(16)
    used, q = ints(batch.keys, "cuda"), torch.stack(batch.q)

    def attend(sinks: torch.Tensor) -> Any:
        return FUNCTIONS.flash_attn_with_kvcache(
            q, k, v, cache_seqlens=used, block_table=table, s_aux=sinks
        )

    attend(sinks)
    torch.cuda.set_sync_debug_mode("error")
    try:
        o = attend(sinks)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert same_bits([[o]], [[attend(sinks.float())]])


def whole(batch: LatentBatch) -> Results:
    """From flash_mla_with_kvcache."""
    k, _, table = batch.pages(64)
    q, used = torch.stack(batch.q), ints(batch.keys, "cuda")
    o, lse = FUNCTIONS.flash_mla_with_kvcache(q, k, table, used, VALUE, causal=True)
    return list(zip(o, lse, strict=True))


WAYS: dict[str, Any] = {
    "paged": lambda batch: batch.paged(64),
    "a place each": lambda batch: batch.cached(3000),
    "packed queries": lambda batch: batch.packed(64),
    "whole": whole,
}


@pytest.mark.parametrize(("way", "separate", "sinks"), [
    ("paged", False, False), ("a place each", False, True), ("packed queries", False, False),
    ("whole", False, False), ("paged", True, True), ("packed queries", True, True),
])  # fmt: skip
def test_latent_caches_go_the_short_way(
    full: list[launch.Call], way: str, separate: bool, sinks: bool
) -> None:
    given = torch.randn(128, device="cuda").bfloat16() if sinks else None
    for n in (9, 13, 12, 40):
        for seed in (1, 2):
            batch = latent(n, heads=128, seed=seed, separate=separate, sinks=given)
            batch.check(WAYS[way](batch))
    # Packed rows that belong to no sequence change the average sequence.
    assert len(full) <= (4 if way == "packed queries" else 1)


@pytest.mark.parametrize("num_splits", [0, 3])
@pytest.mark.parametrize("heads", [16, 128])
def test_parts_of_latent_caches_have_memory_of_the_calls_sizes(
    full: list[launch.Call], heads: int, num_splits: int
) -> None:
    """Of few sequences, and where a number of splits is given; each of which is a kind of call."""
    sizes = (1, 2, 9, 1, 40, 2)
    for n in sizes:
        for seed in (1, 2):
            batch = latent(n, heads=heads, seed=seed)
            batch.check(batch.paged(64, num_splits=num_splits))
    assert len(full) <= len(set(sizes))


@pytest.mark.parametrize("splits", [0, 4])
@pytest.mark.parametrize("keys", [[700] * 3, [9000]])
def test_a_call_makes_its_result_alone(keys: list[int], splits: int) -> None:
    """What kernels leave for each other is there from the call before, of one launch and of two."""
    batch = on_gpu([1] * len(keys), keys)
    q, (k, v, table), used = torch.stack(batch.q), batch.pages(16), ints(keys, "cuda")

    def allocations() -> int:
        FUNCTIONS.flash_attn_with_kvcache(
            q, k, v, cache_seqlens=used, block_table=table, num_splits=splits
        )
        return int(torch.cuda.memory_stats()["allocation.all.allocated"])

    found = [allocations() for _ in range(4)]
    assert found[3] - found[2] == 1


def test_a_latent_cache_is_one_kind_of_call_whole_and_in_parts(full: list[launch.Call]) -> None:
    batch = latent(5)
    in_parts = batch.paged(64)
    full.clear()
    batch.check(whole(batch))
    assert not full and same_bits(in_parts, whole(batch))


def test_latent_caches_are_refused_after_the_short_way_too() -> None:
    batch = latent(3)
    k, _, table = batch.pages(64)
    q, used = torch.stack(batch.q), ints(batch.keys, "cuda")
    attend: Any = FUNCTIONS.flash_mla_with_kvcache
    for _ in range(2):
        attend(q, k, table, used, VALUE)
        with pytest.raises(ValueError, match="head_dim_v is 64: expected 512"):
            attend(q, k, table, used, 64)
        with pytest.raises(ValueError, match="q has head dimension 512: expected 576"):
            attend(q[..., :VALUE], k, table, used, VALUE)
        with pytest.raises(ValueError, match=r"k_cache has dtype torch.bfloat16, but q"):
            attend(q, k.bfloat16(), table, used, VALUE)
        with pytest.raises(ValueError, match="out shares memory"):
            attend(q, k, table, used, VALUE, out=q[..., :VALUE])
