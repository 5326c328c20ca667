"""Serving calls on a GPU: lengths, windows, caches and splits against fp64, in graphs and on
streams, without waiting for the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

import flash_attention
from flash_helpers.check.serving import ServeRule, attend_sequence
from flash_helpers.check.tolerance import compare
from tests.serving.problems import FULL, Batch, ints, same_bits
from tests.serving.problems import poisoned_memory as filled_with_nan
from tests.serving.test_append import Rotary, append

pytestmark = pytest.mark.gpu

CAUSAL = ServeRule(causal=True)
DTYPES = [torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    with filled_with_nan():
        yield


def on_gpu(queries: list[int], keys: list[int], rule: ServeRule = FULL, **keywords: Any) -> Batch:
    return Batch(queries, keys, rule, device="cuda", **keywords)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [40, 64, 128, 160, 192, 256])
@pytest.mark.parametrize("group", [1, 3, 4, 8, 12, 64])
def test_groups_and_dimensions(group: int, d: int, dtype: torch.dtype) -> None:
    for queries in ([1, 1, 1], [3, 0, 70]):
        batch = on_gpu(queries, [1023, 9, 300], CAUSAL, heads=2 * group, d=d, dtype=dtype)
        for num_splits in (0, 1, 5):
            batch.check(batch.packed(num_splits=num_splits))


@pytest.mark.parametrize("rule", [
    CAUSAL, ServeRule(), ServeRule(window=(127, 0)), ServeRule(window=(1023, 1023)),
    ServeRule(causal=True, softcap=50.0), ServeRule(window=(0, 0)), ServeRule(window=(-1, 63)),
], ids=str)  # fmt: skip
@pytest.mark.parametrize(("d", "d_v"), [(64, 64), (128, 128), (192, 128), (256, 256)])
def test_long_sequences(rule: ServeRule, d: int, d_v: int) -> None:
    sinks = torch.randn(4, device="cuda")
    batch = on_gpu(
        [2048, 1, 513, 0, 64], [2048, 4097, 513, 7, 3000], rule, d=d, d_v=d_v, sinks=sinks
    )
    batch.check(batch.packed())


@pytest.mark.parametrize("rule", [
    ServeRule(window=(1023, 0)), ServeRule(window=(512, 512)), ServeRule(window=(3000, 0)), CAUSAL,
    ServeRule(causal=True, softcap=30.0), ServeRule(causal=True, softcap=2.0),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("dtype", DTYPES)
def test_wide_windows(rule: ServeRule, scale: float | None, d: int, dtype: torch.dtype) -> None:
    """More tiles than thread blocks, each of many blocks of keys; with the larger scale rows often
    meet a score far above those before it."""
    lengths = [4096, 2500, 4095, 300]
    batch = on_gpu(lengths, lengths, replace(rule, scale=scale), heads=8, d=d, dtype=dtype)
    batch.check(batch.packed())


@pytest.mark.parametrize("window", [(127, 0), (0, 0), (100, 150), (511, 0)], ids=str)
@pytest.mark.parametrize("softcap", [0.0, 30.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_narrow_windows(window: tuple[int, int], softcap: float, dtype: torch.dtype) -> None:
    """Kernels whose groups take no turns, of packed keys and of pages."""
    rule, sinks = ServeRule(window=window, softcap=softcap), torch.randn(16, device="cuda")
    batch = on_gpu(
        [4096, 64, 2500, 0, 300], [5000, 64, 2500, 5, 700], rule, heads=16, kv_heads=2, d=64,
        dtype=dtype, sinks=sinks,
    )  # fmt: skip
    batch.check(batch.packed())
    batch.check(batch.packed_over_pages(16))


@pytest.mark.parametrize(("d", "d_v"), [(96, 96), (192, 192), (192, 128), (256, 256)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", [CAUSAL, ServeRule(window=(1023, 0), softcap=9.0)], ids=str)
def test_other_heads_of_prompts(rule: ServeRule, dtype: torch.dtype, d: int, d_v: int) -> None:
    lengths = [4096, 2500, 64, 0, 300]
    batch = on_gpu(lengths, [5000, *lengths[1:]], rule, heads=8, d=d, d_v=d_v, dtype=dtype)
    batch.check(batch.packed())


@pytest.mark.parametrize("page", [1, 8, 16, 24, 64, 256])
@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize("d", [128, 192, 256])
def test_pages_are_the_same_as_a_cache(page: int, queries: int, d: int) -> None:
    lengths = [1, 100, 5000, 0, 2048]
    batch = on_gpu([queries] * 5, lengths, CAUSAL, heads=8, kv_heads=1, d=d)
    contiguous = batch.cached(5003)
    batch.check(contiguous)
    paged = batch.paged(page)
    batch.check(paged)
    fixed = [f(n, num_splits=7) for f, n in ((batch.cached, 5003), (batch.paged, page))]
    assert same_bits(*fixed)


@pytest.mark.parametrize("n", [31, 33, 512, 2000])
def test_many_sequences(n: int) -> None:
    lengths = [i % 5 for i in range(n)]
    batch = on_gpu(lengths, [length + 3 for length in lengths], CAUSAL, heads=8)
    batch.check(batch.packed())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kv_heads", [8, 17])
@pytest.mark.parametrize("queries", [1, 4])
def test_two_thread_blocks_on_a_multiprocessor(
    queries: int, kv_heads: int, dtype: torch.dtype
) -> None:
    """Of many tiles; KV heads side by side, and of 17, where 9 thread blocks of 264 would be left
    over, not."""
    lengths = [*(i * 37 % 1500 for i in range(600 // kv_heads)), 3000]
    batch = on_gpu(
        [queries] * len(lengths), lengths, CAUSAL, heads=8 * kv_heads, kv_heads=kv_heads, d=128,
        dtype=dtype, sinks=torch.randn(8 * kv_heads, device="cuda"),
    )  # fmt: skip
    contiguous = batch.cached(3001)
    batch.check(contiguous)
    assert same_bits(contiguous, batch.paged(16))


def test_a_sequence_has_the_same_bits_in_every_batch() -> None:
    batch = on_gpu([1, 300, 1], [3000, 1300, 7], CAUSAL, heads=8)
    for num_splits in (1, 3):
        together = batch.packed(num_splits=num_splits)
        for i in range(3):
            alone = on_gpu([batch.queries[i]], [batch.keys[i]], CAUSAL, heads=8)
            alone.q, alone.k, alone.v = [batch.q[i]], [batch.k[i]], [batch.v[i]]
            assert same_bits(alone.packed(num_splits=num_splits), together[i : i + 1])


def test_the_same_bits_a_hundred_times_on_two_streams() -> None:
    batch = on_gpu([1] * 4, [3000, 5, 900, 16000], heads=16, d=128)
    first = batch.paged(16)
    streams: list[Any] = [torch.cuda.Stream() for _ in range(2)]  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    results = []
    for i in range(100):
        with torch.cuda.stream(streams[i % 2]):
            results.append(batch.paged(16))
    torch.cuda.synchronize()
    assert all(same_bits(first, other) for other in results)


def test_nothing_waits_for_the_device() -> None:
    batch = on_gpu([1] * 4, [3000, 5, 900, 16000], heads=16, d=128)
    k, v, table = batch.pages(16)
    lengths = ints(batch.keys, "cuda")
    q = torch.stack(batch.q)
    flash_attention.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, block_table=table)
    torch.cuda.set_sync_debug_mode("error")
    try:
        flash_attention.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, block_table=table)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("queries", [2, 150])
def test_case_10_a_graph_follows_lengths_and_tables(queries: int) -> None:
    """Captured for one batch, replayed for others: shorter, empty and longer, on other pages."""
    captured = on_gpu([queries] * 3, [500, 40, 9], CAUSAL, heads=8, d=128)
    k, v, table = captured.pages(16)
    room = torch.zeros(3, 64, dtype=torch.int32, device="cuda")
    lengths = ints(captured.keys, "cuda")
    pages = [x.new_zeros(80, *x.shape[1:]) for x in (k, v)]
    q = torch.stack(captured.q)

    def call() -> Any:
        return flash_attention.flash_attn_with_kvcache(
            q,
            pages[0],
            pages[1],
            cache_seqlens=lengths,
            block_table=room,
            causal=True,
            return_softmax_lse=True,
        )

    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = call()
    memory = torch.cuda.memory_allocated()
    for seed, keys in enumerate(([500, 40, 9], [0, 0, 0], [1000, 2, 17], [3, 1000, 0])):
        batch = on_gpu([queries] * 3, keys, CAUSAL, heads=8, d=128, seed=seed)
        k, v, table = batch.pages(16)
        for to, new in zip(pages, (k, v), strict=True):
            to.fill_(float("nan"))
            to[: len(new)] = new
        room.fill_(-1)
        room[:, : table.shape[1]] = table
        lengths.copy_(ints(keys))
        q.copy_(torch.stack(batch.q))
        del k, v, table
        graph.replay()
        batch.check(list(zip(o, lse, strict=True)))
    assert torch.cuda.memory_allocated() <= memory + 2**24  # of the batches' own tensors


@pytest.mark.parametrize("queries", [1, 40])
def test_case_14_far_pages(queries: int) -> None:
    """A stride between pages of 2^31 elements."""
    batch = on_gpu([queries], [8], heads=1, kv_heads=1)
    memory = torch.empty(2**31 + 8 * 64, dtype=torch.float16, device="cuda")
    k = memory.as_strided((2, 8, 1, 64), (2**31, 64, 64, 1))
    k[1] = batch.k[0]
    v = batch.v[0][None].expand(2, -1, -1, -1)
    batch.check(batch.with_cache(k, v, block_table=ints([1], "cuda")[None]))


@pytest.mark.parametrize("page", [0, 1, 16])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_case_16_appended_keys(page: int, interleaved: bool, d: int) -> None:
    batch = on_gpu([2] * 8, [100 + 3 * i for i in range(8)], CAUSAL, heads=8, d=d)
    append(batch, [2] * 8, page=page, rotary=Rotary.draw(d // 2, interleaved))


def test_appended_rows_of_any_number() -> None:
    batch = on_gpu([4, 7, 1, 2], [40, 9, 77, 6], CAUSAL)
    append(batch, [7, 2, 0, 6], packed=True, page=8, rotary=Rotary.draw(16, False))


@pytest.mark.parametrize("rule", [ServeRule(window=(100, 3)), ServeRule(softcap=2.0)], ids=str)
def test_flash_attn_func_with_a_rule(rule: ServeRule) -> None:
    """Lengths that fill no block, and a head dimension that fills no kernel."""
    lengths = (501, 4), (777, 2), (777, 2)
    q, k, v = (torch.randn(2, *size, 80, device="cuda").half() for size in lengths)
    sinks = torch.ones(4, device="cuda")
    attend: Any = flash_attention.flash_attn_func
    o = attend(q, k, v, window_size=rule.window, softcap=rule.softcap, s_aux=sinks)
    for i in range(2):
        expected, _ = attend_sequence(q[i], k[i], v[i], rule, sinks=sinks)
        assert compare(o[i], expected).passed
