"""Tiles with the rows of all heads that share a KV head, on a GPU: the calls that are for them, and
every number of heads and queries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from flash_attention.serving import launch
from flash_helpers.check.serving import ServeRule
from flash_helpers.kernels.serve_config import ServeKernelConfig
from flash_helpers.kernels.sm90_serve.config import HopperServeKernelConfig
from tests.serving.packing import rows_of
from tests.serving.problems import NAN, Batch, poisoned_memory, same_bits

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0),
        reason="kernels of compute capability 9.0",
    ),
]

CAUSAL = ServeRule(causal=True)
CHUNK = [700, *[1] * 40]


@pytest.fixture(autouse=True)
def _poisoned() -> Iterator[None]:
    with poisoned_memory():
        yield


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[ServeKernelConfig]:
    """The configurations that were chosen, call by call."""
    configs: list[ServeKernelConfig] = []
    choose = launch.choose

    def recorded(call: launch.Call) -> ServeKernelConfig:
        configs.append(choose(call))
        return configs[-1]

    monkeypatch.setattr(launch, "choose", recorded)
    monkeypatch.setattr("flash_attention.serving.varlen.again", lambda *_: None)
    return configs


@pytest.mark.parametrize("queries", [CHUNK, CHUNK[::-1], [17] * 40, [64, 0, 1, 30] * 10], ids=len)
@pytest.mark.parametrize("page", [0, 16, 24, 256])
def test_calls_for_these_kernels(
    chosen: list[ServeKernelConfig], queries: list[int], page: int
) -> None:
    keys = [n + 300 * (i % 7) for i, n in enumerate(queries)]
    batch = Batch(queries, keys, CAUSAL, heads=32, kv_heads=8, d=128, device="cuda")
    batch.check(batch.packed_over_pages(page) if page else batch.packed())
    (config,) = chosen
    assert isinstance(config, HopperServeKernelConfig) and config.pack_gqa


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("d", [64, 96, 128, 192, 256])
@pytest.mark.parametrize("group", [2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 33, 64])
def test_groups_and_dimensions(group: int, d: int, dtype: torch.dtype) -> None:
    sinks = torch.randn(2 * group, device="cuda")
    with rows_of("all heads"):
        for rule in (CAUSAL, ServeRule(window=(127, 30)), ServeRule(causal=True, softcap=20.0)):
            batch = Batch(
                [1, 130, 0, 4, 67], [3000, 700, 9, 260, 67], rule, heads=2 * group, d=d,
                dtype=dtype, sinks=sinks, leftpad=[100, 0, 3, 0, 0], device="cuda",
            )  # fmt: skip
            found = batch.packed_over_pages(16)
            batch.check(found)
            assert same_bits(found, batch.packed())


@pytest.mark.parametrize("queries", [1, 2, 4, 7, 64, 130])
@pytest.mark.parametrize("heads", [(64, 8), (64, 1), (40, 8)])
def test_new_tokens(queries: int, heads: tuple[int, int]) -> None:
    batch = Batch(
        [queries] * 5, [130, 1000, 5000, 150, 2048], CAUSAL, heads=heads[0], kv_heads=heads[1],
        d=128, device="cuda",
    )  # fmt: skip
    with rows_of("all heads"):
        found = batch.cached(5003)
        batch.check(found)
        assert same_bits(found, batch.paged(16))


def test_narrower_values() -> None:
    batch = Batch(
        [333, 0, 65, 1], [1000, 7, 2000, 500], CAUSAL, heads=8, d=192, d_v=128, device="cuda"
    )
    with rows_of("all heads"):
        batch.check(batch.packed())


def test_the_same_bits_a_hundred_times_whatever_the_neighbours_are() -> None:
    batch = Batch(CHUNK, [3000] * 41, CAUSAL, heads=32, kv_heads=8, d=128, device="cuda")
    first = batch.packed()
    assert all(same_bits(first, batch.packed()) for _ in range(100))
    for tensors in (batch.q, batch.k, batch.v):
        tensors[7][:] = NAN
    poisoned = batch.packed()
    assert same_bits(poisoned[:7] + poisoned[8:], first[:7] + first[8:])
