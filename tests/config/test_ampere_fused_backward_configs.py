"""Configurations of the Ampere family's fused backward pass: names, constraints, sizes, and which
problems it is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flash_helpers.kernel_configs import DType, Variant, get_kernel_configs, violations
from flash_helpers.kernels.backward_config import Sizes
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import by_preference, family_of
from flash_helpers.kernels.sm80_bwd_fused.config import AmpereFusedBackwardKernelConfig
from tests.config.spellings import check_spellings

CONFIG = AmpereFusedBackwardKernelConfig(DType.FP16, 128, 128, 64, 8)
SHORT = "(FP16, 128, 128, 64, 8): ampere_fused_backward"
SYMBOL = "flash_bwd_sm80_fused_fp16_d128_k128x64w8"


def test_spellings() -> None:
    suffixes = {Variant.DOTS: "_dots", Variant.KEYS: "", Variant.ROUND: "_round"}
    check_spellings(CONFIG, SHORT, SYMBOL, suffixes)


def test_they_are_part_of_their_word_and_can_be_built() -> None:
    found = [c for c in get_kernel_configs("ampere-bwd") if c.FAMILY == CONFIG.FAMILY]
    assert {(c.dtype, c.d_head) for c in found} == {(t, d) for t in DType for d in (64, 128)}
    assert all(violations(config, "9.0") == [] for config in found)
    assert not any(config.is_deterministic() for config in found)
    assert all("bytes of shared memory" in violations(config, "8.0")[0] for config in found)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"d_head": 96}, "d_head = 96 is not supported: it must be 64 or 128"),
        ({"keys_rows": 32}, "keys_rows = 32 is not supported: it must be 64 or 128"),
        ({"keys_columns": 32}, "keys_columns = 32 is not supported: it must be 64 or 128"),
        ({"keys_warps": 2}, "keys_warps = 2 is not supported: it must be 4 or 8"),
        ({"keys_warps": 4}, "need 384 registers per thread, but a thread has at most 255"),
    ],
)
def test_violations(changes: dict[str, Any], words: str) -> None:
    (reason,) = violations(replace(CONFIG, **changes))
    assert words in reason


def test_sizes() -> None:
    sizes = Sizes(batch=2, seqlen_q=193, seqlen_k=129, n_heads_q=6, n_heads_kv=3)
    assert [CONFIG.grid(variant, sizes) for variant in CONFIG.variants()] == [
        256 // 16 * 6 * 2, 2 * 3 * 2, 4 * 6 * 2,
    ]  # fmt: skip
    assert [CONFIG.threads_of(v) for v in CONFIG.variants()] == [128, 256, 256]
    assert CONFIG.sums_shape(sizes) == (2, 6, 256, 128)
    assert CONFIG.total_flop(1, 1, 256) == 256 * 256 * (2 * 5 * 128 + 7)


def test_where_it_is_asked() -> None:
    family = family_of(CONFIG)
    problem = AttentionProblem(DType.FP16, 1, 512, 512, 4, 4, 128, causal=True)

    def order(capability: tuple[int, int] | None) -> list[str]:
        return [found.NAME for found in by_preference(capability, gradients=True)]

    assert order((10, 0))[:2] == ["sm80_bwd_fused", "sm80_bwd"]
    assert order((9, 0))[-2:] == ["sm80_bwd_fused", "sm80_bwd"]
    assert order(None)[0] == "sm80_bwd"
    assert family.refusal(problem, (9, 0)) is None and family.refusal(problem, None) is None
    for capability in ((8, 0), (12, 0)):
        assert "need more shared memory" in str(family.refusal(problem, capability))
    assert "needs compute capability 8.0" in str(family.refusal(problem, (7, 5)))
    assert family.refusal(replace(problem, d_head=96), (9, 0)) == "its head dimensions are 64, 128"
    refused = family.refusal(replace(problem, deterministic=True), (9, 0))
    assert refused == "its sums of dQ have no order"
