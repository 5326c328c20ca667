"""The configurations of the Hopper family's serving kernels: names, violations, which calls they
take, and how many tiles a launch has."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from flash_attention.serving import launch
from flash_helpers.base.dtypes import DType
from flash_helpers.kernel_configs import (
    Variant,
    get_kernel_configs,
    parse_kernel_name_into_config,
    parse_symbol,
    violations,
)
from flash_helpers.kernels.serve_config import ServeSizes
from flash_helpers.kernels.sm90_serve.config import HopperServeKernelConfig

CONFIG = HopperServeKernelConfig(DType.FP16, 128, 128, 2, 2, 2)
# Others that can be built, but that no set has.
OTHERS = [
    replace(CONFIG, paged=True),
    replace(CONFIG, pack_gqa=True),
    replace(CONFIG, paged=True, pack_gqa=True),
    replace(CONFIG, n_q_buffers=1),
    replace(CONFIG, block_n=96, n_buffers=3, n_q_buffers=1),
    replace(CONFIG, dtype=DType.BF16, block_n=64, n_mma_groups=3, n_buffers=3, n_q_buffers=1),
    replace(CONFIG, d_head=64, n_mma_groups=3, n_buffers=3),
    replace(CONFIG, d_head=192, block_n=80, n_q_buffers=1),
    replace(CONFIG, d_head=192, n_q_buffers=1, narrow_v=True),
]
PROMPT = ServeSizes(batch=3, n_rows=900, seqlen_q=0, n_heads_q=8, n_heads_kv=2, d_head=128, d_v=128)


def test_one_for_packed_keys_and_one_for_pages_with_rows_of_one_head_and_of_all() -> None:
    configs = [
        c for c in get_kernel_configs("hopper-serve") if isinstance(c, HopperServeKernelConfig)
    ]
    kinds = {(c.dtype, c.d_head, c.d_v(), c.n_mma_groups, c.paged, c.pack_gqa) for c in configs}
    assert CONFIG in configs and len(configs) == len(kinds) == 64


@pytest.mark.parametrize("config", [CONFIG, *OTHERS], ids=str)
def test_names_read_back(config: HopperServeKernelConfig) -> None:
    for text in (config.kernel_name(), config.short_form(), f"| {config.short_form()} | 1 |"):
        assert parse_kernel_name_into_config(text) == config
    assert config.variants() == (Variant.SERVE,)
    assert parse_symbol(config.symbol(Variant.SERVE)) == (config, Variant.SERVE)
    with pytest.raises(ValueError, match="has no kernel whole"):
        config.symbol(Variant.WHOLE)


@pytest.mark.parametrize("text", [
    "flash_serve_sm90_fp16_d128_n128_g2_b2", "flash_serve_sm90_fp16_d128_n128_g2_b2_q02",
    "flash_serve_sm90_fp32_d128_n128_g2_b2_q2", "(FP16, 128, 128, 2, 2): hopper_serve",
    "(FP16, 128, 128, 2, 2, 2): hopper_server", "flash_serve_sm90_fp16_d128_n128_g2_b2_q2_merge",
    "(FP16, 128, 128, 2, 2, 2): hopper_serve+paged+paged",
    "(FP16, 128, 128, 2, 2, 2): hopper_serve_paged",
    "(FP16, 128, 128, 2, 2, 2): hopper_serve+pack_gqa+paged",
])  # fmt: skip
def test_misspellings_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not name a kernel configuration"):
        parse_kernel_name_into_config(text)


@pytest.mark.parametrize("config", [CONFIG, *OTHERS], ids=str)
@pytest.mark.parametrize(("arch", "built"), [(None, True), ("9.0", True), ("8.0", False),
                                             ("10.0", False)])  # fmt: skip
def test_only_for_its_own_gpus(
    config: HopperServeKernelConfig, arch: str | None, built: bool
) -> None:
    assert (not violations(config, arch)) == built


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({"d_head": 80}, "d_head = 80 is not supported: it must be 64 or 96 or 128 or 192 or 256"),
     ({"d_head": 256, "block_n": 160}, "registers of a consumer's thread"),
     ({"block_n": 100}, "block_n = 100"),
     ({"n_mma_groups": 4}, "n_mma_groups = 4"),
     ({"n_q_buffers": 3}, "n_q_buffers = 3"),
     ({"n_buffers": 3}, "bytes of shared memory"),
     ({"narrow_v": True}, "narrow_v is for d_head = 192, not 128")],
)  # fmt: skip
def test_what_cannot_be_built_says_why(changed: dict[str, Any], reason: str) -> None:
    assert reason in " ".join(violations(replace(CONFIG, **changed), "9.0"))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({}, None), ({"n_rows": 99}, None), ({"n_rows": 98}, "33 queries or more"),
     ({"n_new": 1}, "neither append"), ({"rotates": True}, "nor rotate"),
     ({"paged": True}, "do not read pages"),
     ({"d_head": 64, "d_v": 64}, "have keys of 128 elements"),
     ({"d_v": 64}, "have keys of 128 elements")],
)  # fmt: skip
def test_calls_that_it_takes(changed: dict[str, Any], reason: str | None) -> None:
    found = CONFIG.refusal(replace(PROMPT, **changed))
    assert found is None if reason is None else reason in str(found)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({"page_size": 0}, None), ({"page_size": 8}, None), ({"page_size": 720}, None),
     ({"page_size": 12}, "pages of a multiple of 8 keys"), ({"page_size": 1}, "multiple of 8"),
     ({"paged": False}, "read pages"), ({"n_rows": 98}, "33 queries or more")],
)  # fmt: skip
def test_calls_with_pages_that_it_takes(changed: dict[str, Any], reason: str | None) -> None:
    sizes = replace(PROMPT, **({"paged": True} | changed))
    found = replace(CONFIG, paged=True).refusal(sizes)
    assert found is None if reason is None else reason in str(found)


def test_calls_with_rows_of_all_heads_in_a_tile() -> None:
    """Several heads for a KV head, few queries, and many sequences; never both kinds of kernels."""
    chunk = replace(PROMPT, batch=64, n_rows=2111, n_heads_q=32, n_heads_kv=8, page_size=16)
    taken: list[tuple[dict[str, Any], bool]] = [
        ({}, True), ({"n_rows": 64 * 127}, True), ({"n_rows": 64 * 8 + 1}, True),
        ({"n_rows": 64 * 8}, False), ({"n_rows": 64 * 127 + 1}, False),
        ({"n_rows": 64 * 16, "seqlen_q": 16}, False), ({"n_rows": 64 * 17, "seqlen_q": 17}, True),
        ({"n_heads_kv": 32}, False), ({"n_heads_kv": 2}, True), ({"n_heads_kv": 1}, False),
        ({"n_heads_q": 128, "n_heads_kv": 2}, True), ({"n_heads_q": 130, "n_heads_kv": 2}, False),
        ({"batch": 16, "n_rows": 640}, True), ({"batch": 15, "n_rows": 640}, False),
    ]  # fmt: skip
    for paged in (False, True):
        for changed, packed in taken:
            sizes = replace(chunk, paged=paged, **changed)
            config = replace(CONFIG, paged=paged, pack_gqa=True)
            assert (config.refusal(sizes) is None) == packed, changed
            other = replace(config, pack_gqa=False).refusal(sizes)
            assert not packed or other == "its kernels have rows of one head in a tile"
    assert "neither append" in str(config.refusal(replace(chunk, paged=True, n_new=1)))


@pytest.mark.parametrize("d_head", [64, 96, 128])
def test_large_tiles(monkeypatch: pytest.MonkeyPatch, d_head: int) -> None:
    """Where they, or two of them, have few idle rows, and for long sequences."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    found = {}
    for queries in (33, 128, 129, 192, 256, 257, 767, 768, 10_000):
        sizes = replace(PROMPT, n_rows=3 * queries, d_head=d_head, d_v=d_head)
        config = launch.fitting_sizes(sizes, DType.BF16, queries, torch.device("cuda", 0))
        found[queries] = config.blocks()[0]
        assert config.refusal(sizes) is None
    large = {queries for queries, rows in found.items() if rows == 192}
    assert large == {129, 192, 256, 768, 10_000} and set(found.values()) == {128, 192}


def test_narrow_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of their own at head dimension 64, where a tile is no larger than a sequence."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    for d_head, queries, window, paged, rows in (
        (64, 3000, 0, False, 192), (64, 3000, 1, False, 256), (64, 3000, 512, False, 256),
        (64, 3000, 513, False, 192), (64, 3000, 128, True, 256), (128, 3000, 128, False, 192),
        (64, 100, 128, False, 128),
    ):  # fmt: skip
        sizes = replace(
            PROMPT, n_rows=3 * queries, d_head=d_head, d_v=d_head, window=window, paged=paged
        )
        config = launch.fitting_sizes(sizes, DType.BF16, queries, torch.device("cuda", 0))
        assert config.blocks()[0] == rows, sizes
    assert isinstance(config, HopperServeKernelConfig)
    found = violations(replace(config, narrow_window=True), "9.0")
    assert found == ["narrow_window is for d_head = 64, block_n = 64 and n_mma_groups = 4."]


def test_values_that_it_takes() -> None:
    wide = replace(CONFIG, d_head=192, block_n=96, n_q_buffers=1)
    narrow = replace(wide, block_n=128, narrow_v=True)
    for d_v, taking, other in ((192, wide, narrow), (128, narrow, wide)):
        sizes = replace(PROMPT, d_head=192, d_v=d_v)
        assert taking.refusal(sizes) is None
        found = str(other.refusal(sizes))
        assert found == f"its kernels have keys of 192 elements and values of {other.d_v()}"
    assert "keys of 192 elements" in str(wide.refusal(replace(sizes, d_v=64)))


def test_parts_of_a_block_divide_it_and_its_pages() -> None:
    for config in (replace(CONFIG, paged=True), replace(OTHERS[4], paged=True)):
        for page_size in range(8, 1024, 8):
            rows = config.part_rows(page_size)
            assert rows % 8 == page_size % rows == config.block_n % rows == 0


def test_tiles_are_enough_for_every_split_of_the_rows() -> None:
    """Without the lengths, as many as can be needed where every sequence has its own: one for each
    that is begun, and with a causal mask as many."""
    rows = CONFIG.block_m()
    for total in (1, rows - 1, rows, rows + 1, 3 * rows, 3 * rows + 2):
        sizes = replace(PROMPT, n_rows=total)
        needed = max(
            sum(-(-n // rows) for n in (a, b, total - a - b))
            for a, b in itertools.combinations_with_replacement(range(total + 1), 2)
            if a + b <= total
        )
        assert needed <= CONFIG.n_tiles(sizes) <= needed + 2
        assert CONFIG.grid(Variant.SERVE, sizes) == CONFIG.n_tiles(sizes) * 8


@pytest.mark.parametrize("group", [2, 3, 5, 8, 33, 64])
def test_tiles_of_all_heads_have_whole_queries(group: int) -> None:
    config = replace(CONFIG, pack_gqa=True)
    queries = 2 * (64 // group)
    sizes = replace(PROMPT, n_heads_q=2 * group, n_rows=1000)
    assert config.tile_queries(2 * group, 2) == queries
    assert config.n_tiles(sizes) == 1000 // queries + 3
    assert config.n_tiles(replace(sizes, seqlen_q=queries + 1)) == 6
    assert config.grid(Variant.SERVE, sizes) == config.n_tiles(sizes) * 2


def test_equal_lengths_have_no_tile_too_many() -> None:
    rows = CONFIG.block_m()
    sizes = replace(PROMPT, seqlen_q=rows, n_rows=3 * rows)
    assert CONFIG.n_tiles(sizes) == 3
    assert CONFIG.n_tiles(replace(sizes, seqlen_q=rows + 1, n_rows=3 * rows + 3)) == 6
