"""The configurations of kernels that serve: names, violations, and the sizes of launches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flash_helpers.base.dtypes import DType
from flash_helpers.kernel_configs import (
    Variant,
    get_kernel_configs,
    parse_kernel_name_into_config,
    parse_symbol,
    violations,
)
from flash_helpers.kernels.serve_args import FIELDS, pack_serve_args, unpack_serve_args
from flash_helpers.kernels.serve_config import ServeKernelConfig, ServeSizes

CONFIGS = [c for c in get_kernel_configs("serve") if isinstance(c, ServeKernelConfig)]
LARGE = next(c for c in CONFIGS if c.d_head == 128 and c.blocks() == (64, 64))


def test_names_read_back() -> None:
    assert len(set(CONFIGS)) == 42
    for config in CONFIGS:
        for text in (config.kernel_name(), config.short_form(), f"| {config.short_form()} | 1 |"):
            assert parse_kernel_name_into_config(text) == config
        for variant in config.variants():
            assert parse_symbol(config.symbol(variant)) == (config, variant)
    with pytest.raises(ValueError, match="has no kernel whole"):
        LARGE.symbol(Variant.WHOLE)


@pytest.mark.parametrize("text", [
    "flash_serve_sm80_fp16_d128_r64_c64_w4", "flash_serve_sm80_fp16_d128_r64_c64_w4_s02",
    "(FP16, 128, 64, 64, 4, 2): ampere_server", "flash_serve_sm80_fp16_d128_r64_c64_w4_s2_merge",
])  # fmt: skip
def test_misspellings_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not name a kernel configuration"):
        parse_kernel_name_into_config(text)


@pytest.mark.parametrize("arch", [None, "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"])
def test_every_call_has_a_kernel_everywhere(arch: str | None) -> None:
    """Of both kinds, for all types and head dimensions."""
    built = [config for config in CONFIGS if not violations(config, arch)]
    kinds = {(config.dtype, config.d_head, config.shares_keys()) for config in built}
    assert len(kinds) == 2 * 3 * 2
    assert built == CONFIGS or arch not in (None, "9.0", "10.0")


def test_kernels_of_which_two_are_meant_to_fit() -> None:
    """101.6 KB: one would fit where a multiprocessor has 164, and half of the launch would wait."""
    pair = next(c for c in CONFIGS if c.kernel_name().endswith("_bf16_d128_r16_c64_w4_s3"))
    assert pair.min_blocks_per_sm() == 2 and not violations(pair, "9.0")
    (found,) = violations(pair, "8.0")
    assert "of two thread blocks need 209184 bytes" in found


@pytest.mark.parametrize("arch", ["8.0", "8.6", "9.0"])
def test_gradients_have_a_kernel_everywhere(arch: str) -> None:
    built = [c for c in get_kernel_configs("serve") if c.GRADIENTS and not violations(c, arch)]
    found = {(c.dtype, c.d_head) for c in built}
    assert found == {(dtype, d) for dtype in DType for d in (64, 96, 128, 192, 256)}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({"d_head": 96}, "d_head = 96 is not supported"), ({"n_stages": 1}, "n_stages = 1 is not"),
     ({"B_r": 64, "n_warps": 2}, "n_warps = 2 is not a multiple of 4"),
     ({"B_r": 16, "B_c": 32}, "B_c = 32 must be 64 or 128: 4 warps share the keys"),
     ({"B_r": 32, "n_warps": 2, "B_c": 128}, "looks up 32 rows at a time"),
     ({"n_stages": 4, "B_c": 128}, "bytes of shared memory")],
)  # fmt: skip
def test_what_cannot_be_built_says_why(changed: dict[str, Any], reason: str) -> None:
    assert reason in " ".join(violations(replace(LARGE, **changed), "8.6"))


def test_attention_alone_has_shared_memory() -> None:
    for config in CONFIGS:
        found = {v: config.smem_of(v) for v in config.variants()}
        assert found.pop(Variant.SERVE) == config.smem_bytes() > 0
        assert set(found.values()) == {0}


def test_tiles_are_enough_for_every_split_of_the_rows() -> None:
    """Without the lengths, as many tiles as any lengths can need: one for each begun tile."""
    sizes = ServeSizes(batch=3, n_rows=100, seqlen_q=0, n_heads_q=8, n_heads_kv=2)
    needed = max(
        sum(-(-n * 4 // 64) for n in (a, b, 100 - a - b))
        for a in range(101)
        for b in range(101 - a)
    )
    assert needed <= LARGE.n_tiles(sizes) <= needed + 1
    assert LARGE.grid(Variant.SERVE, sizes) == LARGE.n_tiles(sizes) * 2
    assert LARGE.grid(Variant.COMBINE, sizes) == 0
    assert LARGE.grid(Variant.APPEND, sizes) == 0
    assert LARGE.grid(Variant.APPEND, replace(sizes, n_new=7)) == 7
    assert LARGE.grid(Variant.APPEND, replace(sizes, n_new=7, rotates=True)) == 107
    split = replace(sizes, n_splits=5)
    assert LARGE.grid(Variant.SERVE, split) == 5 * LARGE.n_tiles(sizes) * 2
    # A thread block of 128 threads merges 4 rows.
    assert LARGE.grid(Variant.COMBINE, split) == 16 * LARGE.n_tiles(sizes) * 2


def test_equal_lengths_have_no_tile_too_many() -> None:
    sizes = ServeSizes(batch=3, n_rows=48, seqlen_q=16, n_heads_q=8, n_heads_kv=2)
    assert LARGE.n_tiles(sizes) == 3
    assert LARGE.n_tiles(replace(sizes, seqlen_q=17, n_rows=51)) == 6


def test_packed_bytes_read_back_by_name() -> None:
    given = {name: i for i, name in enumerate(FIELDS)}
    assert unpack_serve_args(pack_serve_args(given)) == given
    assert not any(unpack_serve_args(pack_serve_args({})).values())
    with pytest.raises(ValueError, match="ServeArgs has no max_seqlen"):
        pack_serve_args({"max_seqlen": 1})
    with pytest.raises(ValueError, match="have 488 bytes, got 487"):
        unpack_serve_args(pack_serve_args({})[:-1])


def test_scratch_memory_is_bounded_where_thread_blocks_share_the_keys() -> None:
    """By their number, whatever the call is."""
    config = next(c for c in CONFIGS if c.shares_keys() and (c.d_head, c.blocks()[0]) == (64, 16))
    sizes = ServeSizes(batch=3, n_rows=100, seqlen_q=0, n_heads_q=8, n_heads_kv=2, n_splits=132)
    found = config.scratch(sizes)
    assert found == config.scratch(replace(sizes, batch=500, n_rows=5000, n_heads_q=64))
    assert found["arrivals"] == 4 * config.grid(Variant.SERVE, sizes) == 4 * 132
    assert LARGE.scratch(replace(sizes, n_splits=1)) == {}
    assert LARGE.scratch(sizes)["lse_partial"] == 132 * 100 * 8
