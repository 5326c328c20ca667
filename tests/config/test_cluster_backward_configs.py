"""Configurations of the Hopper family's backward pass by pairs of thread blocks: names,
constraints, sizes, and which problems it is asked for."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from flash_helpers.codegen import render_kernel
from flash_helpers.kernel_configs import (
    DType,
    Variant,
    get_kernel_configs,
    violations,
)
from flash_helpers.kernels.backward_config import Sizes
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import by_preference, family_of
from flash_helpers.kernels.sm90_bwd_cluster.config import ClusterBackwardKernelConfig, SumsOrder
from tests.config.spellings import check_spellings

CONFIG = ClusterBackwardKernelConfig(DType.FP16, 192, 64, 64, 2, 2, 64, SumsOrder.ANY_ORDER)
SHORT = "(FP16, 192, 64, 64, 2, 2, 64, ANY_ORDER): cluster_backward"
SYMBOL = "flash_bwd_sm90_cluster_fp16_d192_k64x64s2_ds2_w64_any_order"


def test_spellings() -> None:
    suffixes = {Variant.DOTS: "_dots", Variant.KEYS: "", Variant.ROUND: "_round"}
    check_spellings(CONFIG, SHORT, SYMBOL, suffixes)


def test_they_share_a_word_and_can_be_built() -> None:
    found = [c for c in get_kernel_configs("hopper-bwd") if c.FAMILY == CONFIG.FAMILY]
    assert {(c.dtype, c.d_head, c.is_deterministic()) for c in found} == {
        (dtype, 192, deterministic) for dtype in DType for deterministic in (False, True)
    }
    assert all(violations(config, "9.0") == [] for config in found)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"d_head": 128}, "d_head = 128 is not supported: it must be 192"),
        ({"keys_rows": 128}, "keys_rows = 128 is not supported: it must be 64"),
        ({"keys_columns": 128}, "keys_columns = 128 is not supported: it must be 64"),
        ({"keys_stages": 3}, "the kernel keys need 280552 bytes of shared memory"),
        ({"ds_stages": 3}, "the kernel keys need 247256 bytes of shared memory"),
        (
            {"sums_order": SumsOrder.IN_ORDER},
            "wave_pairs = 64 is not supported with sums_order = IN_ORDER",
        ),
    ],
)
def test_violations(changes: dict[str, Any], words: str) -> None:
    (reason,) = violations(replace(CONFIG, **changes))
    assert words in reason


def test_other_architectures_are_refused() -> None:
    assert violations(CONFIG, "9.0") == []
    assert "needs wgmma and setmaxnreg" in violations(CONFIG, "10.0")[0]


@pytest.mark.parametrize("variant", CONFIG.variants())
def test_the_large_kernel_alone_says_that_it_comes_in_clusters(variant: Variant) -> None:
    text = render_kernel(CONFIG, variant)
    assert ("__cluster_dims__(2, 1, 1)" in text) == (variant is Variant.KEYS)


def test_thread_blocks_come_in_pairs() -> None:
    sizes = Sizes(batch=2, seqlen_q=193, seqlen_k=129, n_heads_q=6, n_heads_kv=3)
    assert [CONFIG.grid(variant, sizes) for variant in CONFIG.variants()] == [
        256 // 16 * 6 * 2, 2 * 2 * 3 * 2, 4 * 6 * 2,
    ]  # fmt: skip
    assert [CONFIG.threads_of(v) for v in CONFIG.variants()] == [128, 512, 256]
    assert [CONFIG.cluster(v) for v in CONFIG.variants()] == [1, 2, 1]
    assert CONFIG.total_flop(1, 1, 256) == 256 * 256 * (2 * 5 * 192 + 7)


# batch, keys, query and KV heads, causal; then pairs and query heads of a section, sections, how
# many lie between, and query heads that the kernels before and behind take care of.
SECTIONS = [
    ((8, 2048, 16, 16, False), (16, 1, 128, 4, 4, 4)),
    ((8, 4096, 16, 16, True), (64, 2, 64, 2, 4, 4)),
    ((2, 2048, 64, 8, False), (16, 8, 16, 4, 32, 32)),
    ((1, 16384, 16, 16, True), (128, 1, 16, 2, 2, 2)),
    ((1, 2048, 8, 4, True), (64, 8, 1, 1, 8, 8)),  # a single one
    ((99, 896, 3, 3, False), (7, 1, 297, 297, 297, 297)),  # too few pairs of each head
    ((5, 4096, 3, 3, True), (64, 2, 8, 2, 4, 5)),  # the last section rounds nothing
    ((8, 2048, 16, 16, True), (64, 4, 32, 32, 128, 128)),  # with a mask more pairs of each head
    ((5, 0, 3, 1, True), (0, 3, 5, 5, 15, 15)),
]


@pytest.mark.parametrize(("problem", "expected"), SECTIONS, ids=str)
def test_who_takes_care_of_which_queries(
    problem: tuple[int, int, int, int, bool], expected: tuple[int, ...]
) -> None:
    batch, keys, heads, kv_heads, causal = problem
    sizes = Sizes(batch, 200, keys, heads, kv_heads, causal=causal)
    found = CONFIG.sections(sizes)
    around = found.prepared_before(), found.rounded_behind()
    assert (found.pairs, found.heads, found.count, found.lead, *around) == expected
    assert found.workers == (found.pairs // 2 if causal else found.pairs)
    assert CONFIG.grid(Variant.DOTS, sizes) == 256 // 16 * around[0]
    assert CONFIG.grid(Variant.ROUND, sizes) == 4 * around[1]
    none = replace(CONFIG, wave_pairs=0).sections(sizes)
    assert none.prepared_before() == none.rounded_behind() == batch * heads


@pytest.mark.parametrize(("queries", "lead"), [(5120, 4), (5121, 128)])
def test_sums_that_would_not_stay_in_the_cache(queries: int, lead: int) -> None:
    """Nine sections' together: 34 MiB are 5,158 rows of each."""
    sizes = Sizes(8, queries, 2048, 16, 16)
    assert CONFIG.sections(sizes).lead == lead


def test_what_the_family_is_asked_for() -> None:
    """What is long enough; the rest is left to two passes."""
    family = family_of(CONFIG)
    problem = AttentionProblem(DType.FP16, 1, 4096, 4096, 1, 1, 192, gradients=True)
    order = [f.NAME for f in by_preference((9, 0), gradients=True)]
    assert order[:3] == ["sm90_bwd_fused", "sm90_bwd_cluster", "sm90_bwd"]
    assert by_preference((8, 0), gradients=True)[-1] is family
    for causal, deterministic in itertools.product((False, True), repeat=2):
        least = 2048 if causal and deterministic else 1024
        asked = replace(problem, causal=causal, deterministic=deterministic)
        for keys in (least, least - 1):
            reason = family.refusal(replace(asked, seqlen_k=keys), (9, 0))
            assert reason == (
                None if keys == least else f"for fewer than {least} keys two passes are faster"
            )
    assert "its head dimensions are 192" in str(
        family.refusal(replace(problem, d_head=128, d_v=0), (9, 0))
    )
    assert "it needs compute capability 9.0" in str(family.refusal(problem, (8, 0)))
    in_order = replace(CONFIG, wave_pairs=0, sums_order=SumsOrder.IN_ORDER)
    for deterministic in (False, True):
        asked = replace(problem, deterministic=deterministic)
        assert family.suits(in_order, asked) is deterministic
        assert family.suits(CONFIG, asked) is not deterministic


def test_counters_lie_behind_the_sums() -> None:
    in_order = replace(CONFIG, wave_pairs=0, sums_order=SumsOrder.IN_ORDER)
    none = replace(CONFIG, wave_pairs=0)
    assert [c.sums_columns() for c in (none, CONFIG, in_order)] == [193] * 3
