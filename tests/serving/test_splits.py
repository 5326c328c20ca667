"""Into how many parts keys are cut, and calls of few tiles, whose parts a launch of its own
merges."""

from __future__ import annotations

import random

import pytest
import torch

from flash_attention import emulated
from flash_attention.serving import splits
from flash_attention.serving.splits import with_splits
from flash_helpers.check.serving import ServeRule
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.names import parse_kernel_name_into_config
from flash_helpers.kernels.serve_config import (
    FEW_HEADS,
    TELLING_ROWS,
    ServeKernelConfig,
    ServeSizes,
)
from tests.serving.latent import LatentBatch

CPU = torch.device("cpu")
ROWS_16 = "flash_mla_sm80_bf16_d576_r16_c64_w8_s3"
ROWS_64 = "flash_mla_sm90_bf16_d576_r64_c64_w8_s2"
DECODES = "flash_serve_sm80_bf16_d128_r16_c128_w8_s3"


def planned(
    name: str, batch: int, heads: int, keys: int, monkeypatch: pytest.MonkeyPatch, rows: int = 0
) -> ServeSizes:
    """On a GPU with an H200's multiprocessors, one query of each sequence."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 132)
    config = parse_kernel_name_into_config(name)
    assert isinstance(config, ServeKernelConfig)
    sizes = ServeSizes(batch, rows or batch, 0, heads, 1)
    return with_splits(config, sizes, 0, keys, CPU)


@pytest.mark.parametrize(
    ("name", "batch", "heads", "keys", "expected"),
    [
        (ROWS_16, 1, 16, 8192, 32),  # four blocks of keys each
        (ROWS_16, 1, 16, 1024, 8),  # two at least
        (ROWS_16, 1, 16, 100, 1),
        (ROWS_16, 1, 16, 0, 1),
        (ROWS_16, 1, 16, 131_072, 128),  # as many as may be asked for
        (ROWS_16, 4, 16, 131_072, 33),  # as many as there are multiprocessors
        (ROWS_64, 1, 128, 8192, 32),
        (ROWS_64, 2, 128, 131_072, 33),
    ],
)
def test_few_tiles_have_splits_of_their_own(
    name: str, batch: int, heads: int, keys: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = planned(name, batch, heads, keys, monkeypatch)
    assert sizes.is_fixed and sizes.n_splits == expected


@pytest.mark.parametrize(
    ("name", "batch", "heads"),
    [(ROWS_16, 5, 16), (ROWS_64, 3, 128), (ROWS_64, 1, 320), (DECODES, 1, 8)],
)
def test_thread_blocks_share_the_keys_of_many_tiles(
    name: str, batch: int, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one long sequence would wait for its own few; and where there is no other launch."""
    sizes = planned(name, batch, heads, 8192, monkeypatch)
    assert not sizes.is_fixed and sizes.n_splits == 132


def test_who_shares_is_told_by_the_key_of_remembered_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the way of a call, and the bits of its results, would depend on earlier ones."""
    draw = random.Random(0)
    ways: dict[tuple[int, ...], bool] = {}
    n_seen_again = 0
    for _ in range(2000):
        batch, heads = draw.randrange(1, 8), draw.choice([1, 16, 64, 100])
        n_rows = draw.choice([batch, batch * draw.randrange(1, 5), draw.randrange(batch, 90)])
        average = (-(-n_rows * heads // batch), -(-n_rows // batch), n_rows // batch)
        key = (heads, *(min(n, TELLING_ROWS) for n in average), min(batch, FEW_HEADS + 1))
        way = planned(ROWS_16, batch, heads, 4096, monkeypatch, n_rows).is_fixed
        n_seen_again += key in ways
        assert ways.setdefault(key, way) is way
    assert n_seen_again > 500 and len(set(ways.values())) == 2


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[KernelConfig, Variant]]:
    found: list[tuple[KernelConfig, Variant]] = []
    kernel = emulated.emulated_kernel

    def noted(config: KernelConfig, variant: Variant) -> object:
        found.append((config, variant))
        return kernel(config, variant)

    monkeypatch.setattr(emulated, "emulated_kernel", noted)
    return found


@pytest.mark.parametrize("heads", [16, 70])
def test_a_launch_merges_what_many_thread_blocks_computed(
    heads: int, launched: list[tuple[KernelConfig, Variant]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More splits than are read at once, of which the shorter sequence leaves many empty."""
    monkeypatch.setattr(splits, "EMULATED_MULTIPROCESSORS", 40 * 2 * -(-heads // 16))
    batch = LatentBatch(
        [1, 1], [2500, 90], ServeRule(causal=True), heads=heads, sinks=torch.randn(heads)
    )
    batch.check(batch.paged(64))
    assert [variant for _, variant in launched] == [Variant.SERVE, Variant.COMBINE]


def test_memory_is_of_the_sizes_where_a_number_of_splits_is_given() -> None:
    """So that the short way makes it anew for each call: a larger batch would write behind it."""
    config = parse_kernel_name_into_config(ROWS_16)
    assert isinstance(config, ServeKernelConfig)
    few, many = (
        with_splits(config, ServeSizes(n, n, 1, 16, 1, is_fixed=True), 3, 1000, CPU) for n in (2, 9)
    )
    assert config.splits_by_sizes(few) and not config.shares(few)
    assert config.scratch(many)["o_partial"] > config.scratch(few)["o_partial"]
    shared = with_splits(config, ServeSizes(2, 2, 1, 16, 1), 0, 1000, CPU)
    assert config.shares(shared) and not config.splits_by_sizes(shared)
