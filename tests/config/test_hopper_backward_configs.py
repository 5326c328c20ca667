"""Configurations of the Hopper family's backward pass: names, constraints, sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flash_helpers.kernel_configs import (
    DType,
    Variant,
    get_kernel_configs,
    parse_kernel_name_into_config,
    violations,
)
from flash_helpers.kernels.backward_config import Sizes
from flash_helpers.kernels.contract import config_order
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import by_preference, family_of
from flash_helpers.kernels.sm90_bwd.config import HopperBackwardKernelConfig
from tests.config.spellings import check_spellings

CONFIG = HopperBackwardKernelConfig(DType.FP16, 128, 128, 64, 2, 192, 64, 3)
SHORT = "(FP16, 128, 128, 64, 2, 192, 64, 3): hopper_backward"
SYMBOL = "flash_bwd_sm90_fp16_d128_k128x64s2_q192x64s3"


def test_spellings() -> None:
    suffixes = {Variant.DOTS: "_dots", Variant.KEYS: "", Variant.QUERIES: "_queries"}
    check_spellings(CONFIG, SHORT, SYMBOL, suffixes)
    for wrong in (SYMBOL.replace("s2", "w2"), SHORT.replace("hopper", "hoppers")):
        with pytest.raises(ValueError, match="does not name a kernel configuration"):
            parse_kernel_name_into_config(wrong)


def test_the_set_is_part_of_all_and_can_be_built() -> None:
    found = get_kernel_configs("hopper-bwd")
    assert set(found) <= set(get_kernel_configs("all")) and found == sorted(found, key=config_order)
    assert all(config.GRADIENTS and violations(config, "9.0") == [] for config in found)
    assert {(c.dtype, c.d_head) for c in found if c.FAMILY == CONFIG.FAMILY} == {
        (t, d) for t in DType for d in (64, 96, 128, 192, 256)
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"d_head": 80}, "d_head = 80 is not supported: it must be 64 or 96 or 128 or 192 or 256"),
        ({"keys_rows": 64}, "keys_rows = 64 is not supported: it must be 128 or 192"),
        ({"queries_columns": 96}, "queries_columns = 96 is not supported: it must be 64 or 128"),
        ({"keys_columns": 128}, "the kernel keys need about 288 registers of a consumer's thread"),
        ({"queries_columns": 128, "queries_stages": 2}, "with 3 groups it has 160"),
        (
            {"queries_stages": 1},
            "queries_stages = 1 is not supported: of V there is one stage less",
        ),
        ({"d_head": 256, "queries_rows": 128}, "keys_rows = 128 is not supported: it must be 64"),
        ({"keys_stages": 6}, "the kernel keys need 265424 bytes of shared memory"),
    ],
)
def test_violations(changes: dict[str, Any], words: str) -> None:
    (reason,) = violations(replace(CONFIG, **changes))
    assert words in reason


@pytest.mark.parametrize("arch", ["8.0", "10.0", "12.0"])
def test_other_architectures_are_refused(arch: str) -> None:
    (reason,) = violations(CONFIG, arch)
    assert "the Hopper family needs wgmma and setmaxnreg, which 9.0 (sm_90a) alone has" in reason


def test_the_family_is_asked_behind_what_computes_scores_once_on_its_own_gpus() -> None:
    family = family_of(CONFIG)
    problem = AttentionProblem(DType.FP16, 1, 1, 1, 1, 1, 128, gradients=True)
    for capability in ((9, 0), (8, 0), None):  # elsewhere behind the Ampere families
        assert by_preference(capability, gradients=True).index(family) == 2
    assert family.refusal(problem, (9, 0)) is None
    assert (
        family.refusal(problem, (8, 0)) == "it needs compute capability 9.0, and this GPU has 8.0"
    )
    assert "its head dimensions are 64, 96, 128, 192, 256" in str(
        family.refusal(replace(problem, d_head=160), (9, 0))
    )


def test_two_groups_have_the_same_keys_where_both_sums_do_not_fit() -> None:
    wide = replace(CONFIG, d_head=256, keys_rows=64, queries_rows=128, queries_stages=2)
    assert violations(wide, "9.0") == []
    assert [c.threads_of(Variant.KEYS) for c in (CONFIG, wide)] == [384, 384]
    assert [c.n_matmuls(Variant.KEYS) for c in (CONFIG, wide)] == [4, 4]
    scores = 384 * 384  # queries that stay are whole blocks of 192, or of 128
    assert CONFIG.total_flop(1, 1, 384) == scores * (2 * 7 * 128 + 14)
    assert wide.total_flop(1, 1, 384) == scores * (2 * 7 * 256 + 14)


def test_thread_blocks() -> None:
    sizes = Sizes(batch=2, seqlen_q=193, seqlen_k=129, n_heads_q=6, n_heads_kv=3)
    assert [CONFIG.grid(variant, sizes) for variant in CONFIG.variants()] == [
        256 // 16 * 6 * 2, 2 * 3 * 2, 2 * 6 * 2,
    ]  # fmt: skip
