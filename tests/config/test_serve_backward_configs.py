"""Configurations of the backward passes that serve: names, sets, which is asked first, grids."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flash_helpers.kernel_configs import (
    DType,
    Variant,
    get_kernel_configs,
    parse_kernel_name_into_config,
    parse_symbol,
    violations,
)
from flash_helpers.kernels.backward_config import BackwardKernelConfig, Sizes
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import by_preference, family_of
from flash_helpers.kernels.sm80_bwd_serve.config import AmpereServeBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_fused.config import AddBy
from flash_helpers.kernels.sm90_bwd_fused_serve.config import FusedServeBackwardKernelConfig

AMPERE = AmpereServeBackwardKernelConfig(DType.FP16, 128, 64, 32, 4, 64, 64, 4)
FUSED = FusedServeBackwardKernelConfig(DType.FP16, 128, 128, 64, 2, 2, AddBy.COPIES)
PACKED = Sizes(batch=3, seqlen_q=300, seqlen_k=200, n_heads_q=6, n_heads_kv=2, packed=True)


@pytest.mark.parametrize("config", [AMPERE, FUSED], ids=str)
def test_spellings(config: BackwardKernelConfig) -> None:
    spelled = family_of(config).SPELLINGS
    assert str(config) in spelled and config.kernel_name() in spelled
    assert parse_kernel_name_into_config(str(config)) == config
    for variant in config.variants():
        assert parse_symbol(config.symbol(variant)) == (config, variant)


def test_they_share_their_words_and_can_be_built() -> None:
    for word, config, arch in (("serve", AMPERE, "8.0"), ("hopper-serve", FUSED, "9.0")):
        found = [c for c in get_kernel_configs(word) if c.FAMILY == config.FAMILY]
        assert 0 < len(found) < len(get_kernel_configs(word))
        assert all(violations(c, arch) == [] for c in found)
        assert {(c.dtype, c.d_head) for c in found} >= {(t, d) for t in DType for d in (64, 128)}
    assert "9.0" in violations(FUSED, "8.0")[0]
    wide = replace(FUSED, d_head=96, keys_columns=80)
    for refused, words in (
        (replace(FUSED, add_by=AddBy.IN_ORDER), "add_by = IN_ORDER is not supported"),
        (wide, "keys_columns = 80 is not supported for kernels that serve"),
    ):
        (reason,) = violations(refused)
        assert words in reason


def test_who_is_asked_first() -> None:
    def first(capability: tuple[int, int] | None, **changes: object) -> str:
        problem = replace(AttentionProblem.self_attention(DType.FP16, 1, 64, 2, 72), **changes)  # type: ignore[arg-type]
        families = by_preference(capability, gradients=True, serves=True)
        return next(f.NAME for f in families if f.refusal(problem, capability) is None)

    for capability in ((8, 0), (10, 0), None):
        assert first(capability) == AMPERE.FAMILY
    assert first((9, 0)) == FUSED.FAMILY
    assert first((9, 0), deterministic=True) == AMPERE.FAMILY


def test_what_stands_beside_is_refused_by_name() -> None:
    assert FUSED.refusal([]) is None
    assert FUSED.refusal(["softcap", "sinks"]) == "its kernels take no softcap and sinks"
    assert AMPERE.refusal(["softcap"], 1.0) is None
    assert FUSED.refusal([], 128.0) is None
    assert FUSED.refusal([], 127.9) == (
        "it takes packed sequences of 128 queries or more, on average"
    )


def test_packed_sequences_may_begin_a_block_more_each() -> None:
    """RowStats are whole blocks of 128 rows for each sequence."""
    assert FUSED.stats_rows(PACKED) == (300 // 128 + 3) * 128
    assert FUSED.stats_rows(replace(PACKED, packed=False)) == 384
    assert FUSED.grid(Variant.KEYS, PACKED) == (200 // 128 + 3) * 2
    assert FUSED.grid(Variant.DOTS, PACKED) == 5 * 128 // 16 * 6
    assert FUSED.grid(Variant.ROUND, PACKED) == 5 * 128 // 64 * 6
    assert FUSED.grid(Variant.ROUND, replace(PACKED, packed=False)) == 384 // 64 * 6 * 3
    assert FUSED.grid(Variant.KEYS, replace(PACKED, seqlen_k=0)) == 0
    assert AMPERE.grid(Variant.KEYS, PACKED) == (200 // 64 + 3) * 2
    assert AMPERE.stats_rows(PACKED) == 384
