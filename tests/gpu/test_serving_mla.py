"""MLA on a GPU: heads, lengths and pages against fp64, in a graph, on streams, and without waiting
for the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import flash_attention
from flash_attention.serving import launch
from flash_helpers.check.serving import ServeRule
from flash_helpers.kernel_configs import get_kernel_configs
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.registry import violations
from tests.serving.latent import VALUE, LatentBatch
from tests.serving.problems import FULL, ints, same_bits
from tests.serving.problems import poisoned_memory as filled_with_nan

pytestmark = pytest.mark.gpu

CAUSAL = ServeRule(causal=True)
DTYPES = [torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    with filled_with_nan():
        yield


def on_gpu(
    queries: list[int], keys: list[int], rule: ServeRule = FULL, **keywords: Any
) -> LatentBatch:
    return LatentBatch(queries, keys, rule, device="cuda", **keywords)


@pytest.mark.parametrize(
    "config", [*get_kernel_configs("mla"), *get_kernel_configs("hopper-mla")], ids=str
)
def test_every_kernel(monkeypatch: pytest.MonkeyPatch, config: KernelConfig) -> None:
    if violations(config, torch.cuda.get_device_capability()):
        pytest.skip("this GPU has less shared memory, or no wgmma")
    monkeypatch.setattr(launch, "choose", lambda call: config)
    dtype = config.dtype.to_torch_dtype()
    for queries, heads in (([1] * 40, 16), ([3, 0, 5], 40)):
        keys = [1 + 77 * i for i in range(len(queries))]
        batch = on_gpu(queries, keys, CAUSAL, heads=heads, dtype=dtype)
        batch.check(batch.packed())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [1, 16, 32, 64, 71, 128])
@pytest.mark.parametrize("queries", [1, 2, 16])
def test_heads_and_queries(queries: int, heads: int, dtype: torch.dtype) -> None:
    batch = on_gpu([queries] * 3, [1023, 16, 5000], CAUSAL, heads=heads, dtype=dtype)
    batch.check(batch.paged(64))


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(("heads", "pages"), [(16, (1, 16, 24, 64, 256)), (64, (8, 24, 64, 256))])
def test_layouts_have_the_same_bits(heads: int, pages: tuple[int, ...], separate: bool) -> None:
    lengths = [1, 100, 5000, 0, 2048]
    batch = on_gpu([1] * 5, lengths, heads=heads, separate=separate)
    contiguous = batch.cached(5003)
    batch.check(contiguous)
    assert all(same_bits(contiguous, batch.paged(page)) for page in pages)


@pytest.mark.parametrize("rule", [
    ServeRule(window=(127, 0)), ServeRule(causal=True, softcap=50.0), ServeRule(window=(-1, 63)),
], ids=str)  # fmt: skip
def test_rules(rule: ServeRule) -> None:
    sinks = torch.randn(16, device="cuda")
    batch = on_gpu([4, 4, 4], [4097, 513, 7], rule, leftpad=[100, 0, 0], sinks=sinks)
    batch.check(batch.packed())


@pytest.mark.parametrize("keys", [64, 8192, 100_000])
def test_one_sequence_by_all_thread_blocks(keys: int) -> None:
    for heads in (16, 128):
        batch = on_gpu([1], [keys], heads=heads)
        batch.check(batch.paged(64))


@pytest.mark.parametrize("heads", [16, 128])
def test_the_same_bits_a_hundred_times_on_two_streams(heads: int) -> None:
    batch = on_gpu([1] * 4, [3000, 5, 900, 16000], heads=heads)
    first = batch.paged(64)
    streams: list[Any] = [torch.cuda.Stream() for _ in range(2)]  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    results = []
    for i in range(100):
        with torch.cuda.stream(streams[i % 2]):
            results.append(batch.paged(64))
    torch.cuda.synchronize()
    assert all(same_bits(first, other) for other in results)


@pytest.mark.parametrize("heads", [16, 128])
def test_a_graph_follows_lengths_and_tables(heads: int) -> None:
    """Captured for one batch, replayed for others on other pages; nothing waits for the device."""
    captured = on_gpu([2] * 3, [500, 40, 9], CAUSAL, heads=heads)
    k, _, _ = captured.pages(64)
    pages = k.new_zeros(40, *k.shape[1:])
    room = torch.zeros(3, 40, dtype=torch.int32, device="cuda")
    lengths = ints(captured.keys, "cuda")
    q = torch.stack(captured.q)

    def call() -> Any:
        return flash_attention.flash_mla_with_kvcache(q, pages, room, lengths, VALUE, causal=True)

    call()
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = call()
    for seed, keys in enumerate(([500, 40, 9], [0, 0, 0], [1500, 2, 17], [3, 2000, 0])):
        batch = on_gpu([2] * 3, keys, CAUSAL, heads=heads, seed=seed)
        k, _, table = batch.pages(64)
        pages.fill_(float("nan"))
        pages[: len(k)] = k
        room.fill_(-1)
        room[:, : table.shape[1]] = table
        lengths.copy_(ints(keys))
        q.copy_(torch.stack(batch.q))
        graph.replay()
        batch.check(list(zip(o, lse, strict=True)))
