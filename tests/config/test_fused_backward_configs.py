"""Configurations of the Hopper family's fused backward pass: names, constraints, sizes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from flash_helpers.kernel_configs import (
    DType,
    Variant,
    get_kernel_configs,
    parse_kernel_name_into_config,
    parse_symbol,
    violations,
)
from flash_helpers.kernels.backward_config import Sizes
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import by_preference, family_of
from flash_helpers.kernels.sm90_bwd_fused.config import AddBy, FusedBackwardKernelConfig
from tests.config.spellings import check_spellings

CONFIG = FusedBackwardKernelConfig(DType.FP16, 128, 128, 64, 2, 2, AddBy.COPIES)
SHORT = "(FP16, 128, 128, 64, 2, 2, COPIES): fused_backward"
SYMBOL = "flash_bwd_sm90_fused_fp16_d128_k128x64s2_ds2_copies"


def test_spellings() -> None:
    suffixes = {Variant.DOTS: "_dots", Variant.KEYS: "", Variant.ROUND: "_round"}
    check_spellings(CONFIG, SHORT, SYMBOL, suffixes)
    in_order = replace(CONFIG, add_by=AddBy.IN_ORDER)
    assert in_order.kernel_name() == SYMBOL.replace("copies", "in_order")
    for variant in in_order.variants():
        assert parse_symbol(in_order.symbol(variant)) == (in_order, variant)
    assert parse_kernel_name_into_config(SHORT.replace("COPIES", "IN_ORDER")) == in_order
    for wrong in (
        SYMBOL.replace("ds", "s"),
        SHORT.replace("COPIES", "copies"),
        SYMBOL + "_queries",
    ):
        with pytest.raises(ValueError, match="does not name a kernel configuration"):
            parse_kernel_name_into_config(wrong)
    with pytest.raises(ValueError, match="has no kernel queries"):
        CONFIG.symbol(Variant.QUERIES)


def test_they_share_their_word_and_can_be_built() -> None:
    found = [c for c in get_kernel_configs("hopper-bwd") if c.FAMILY == CONFIG.FAMILY]
    assert len(found) < len(get_kernel_configs("hopper-bwd"))
    assert all(violations(config, "9.0") == [] for config in found)
    assert {(c.dtype, c.d_head, c.values()["add_by"]) for c in found} == {
        (t, d, a) for t in DType for d in (64, 96, 128) for a in AddBy
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"d_head": 192}, "d_head = 192 is not supported: it must be 64 or 96 or 128"),
        ({"keys_rows": 192}, "keys_rows = 192 is not supported: it must be 128"),
        ({"keys_columns": 128}, "keys_columns = 128 is not supported: it must be 64 or 80"),
        (
            {"keys_columns": 80, "add_by": AddBy.IN_ORDER},
            "keys_columns = 80 is not supported with d_head = 128 in order",
        ),
        ({"ds_stages": 1}, "ds_stages = 1 is not supported: dQ is multiplied while the next dS"),
        ({"keys_stages": 3}, "the kernel keys need 264080 bytes of shared memory"),
    ],
)
def test_violations(changes: dict[str, Any], words: str) -> None:
    (reason,) = violations(replace(CONFIG, **changes))
    assert words in reason


@pytest.mark.parametrize("arch", ["8.0", "10.0"])
def test_other_architectures_are_refused(arch: str) -> None:
    (reason,) = violations(CONFIG, arch)
    assert "the Hopper family needs wgmma and setmaxnreg" in reason


def test_what_the_family_is_asked_for() -> None:
    family = family_of(CONFIG)
    problem = AttentionProblem(DType.FP16, 1, 1, 1, 1, 1, 128, gradients=True)
    assert by_preference((9, 0), gradients=True)[0] is family
    for capability in ((8, 0), None):
        assert by_preference(capability, gradients=True)[-2] is family
    assert family.refusal(problem, (9, 0)) is None
    assert family.refusal(replace(problem, deterministic=True), (9, 0)) is None
    wide = replace(problem, d_head=192, d_v=0)
    assert "its head dimensions are 64, 96, 128" in str(family.refusal(wide, (9, 0)))
    assert "it needs compute capability 9.0" in str(family.refusal(problem, (8, 0)))


def test_thread_blocks_and_work() -> None:
    sizes = Sizes(batch=2, seqlen_q=193, seqlen_k=129, n_heads_q=6, n_heads_kv=6)
    assert [CONFIG.grid(variant, sizes) for variant in CONFIG.variants()] == [
        256 // 16 * 6 * 2, 2 * 6 * 2, 4 * 6 * 2,
    ]  # fmt: skip
    assert CONFIG.total_flop(1, 1, 256) == 256 * 256 * (2 * 5 * 128 + 7)
    assert [CONFIG.threads_of(v) for v in CONFIG.variants()] == [128, 384, 256]
    wide = replace(CONFIG, keys_columns=80)  # its rows end with blocks of 80 and of 32
    assert [wide.grid(variant, sizes) for variant in wide.variants()] == [
        320 // 16 * 6 * 2, 2 * 6 * 2, 3 * 6 * 2,
    ]  # fmt: skip
    assert [wide.stats_rows(replace(sizes, seqlen_q=n)) for n in (1, 160, 161)] == [160, 160, 320]


@pytest.mark.parametrize(
    ("seqlen_k", "heads", "kv_heads", "batch", "causal", "splits"),
    [
        (2048, 32, 8, 1, False, 1),  # 128 blocks of keys
        (2048, 32, 8, 1, True, 2),
        (1024, 32, 8, 1, True, 4),  # all heads
        (4096, 16, 1, 1, False, 4),
        (4096, 16, 1, 1, True, 8),
        (4096, 12, 1, 1, True, 6),  # 8 does not divide them
        (129, 7, 1, 1, False, 7),
        (2048, 32, 32, 1, True, 1),
        (4096, 32, 8, 4, True, 1),
    ],
)
def test_heads_are_shared_out_where_blocks_of_keys_are_few(
    seqlen_k: int, heads: int, kv_heads: int, batch: int, causal: bool, splits: int
) -> None:
    """What they leave for each other lies behind the sums, and a counter for each of their rows:
    counters, and 1 KB for each element."""
    sizes = Sizes(batch, 100, seqlen_k, heads, kv_heads, causal=causal)
    assert CONFIG.head_splits(sizes) == splits
    n_blocks = -(-seqlen_k // 128) * kv_heads * batch
    assert CONFIG.grid(Variant.KEYS, sizes) == n_blocks * splits
    sums = batch * heads * 128 * 129
    behind = -(-n_blocks // 4) * 4 + n_blocks * splits * 256 * 128 if splits > 1 else 0
    assert math.prod(CONFIG.sums_shape(sizes)) == sums + behind
    in_order = replace(CONFIG, add_by=AddBy.IN_ORDER)
    assert in_order.grid(Variant.KEYS, sizes) == n_blocks * splits
    assert math.prod(in_order.sums_shape(sizes)) == sums + behind
