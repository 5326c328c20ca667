"""The covering set: every pair of values that can occur does, and nothing unbuildable."""

from __future__ import annotations

from dataclasses import fields

import pytest

from flash_helpers.kernel_configs import (
    FlashForwardKernelConfig,
    get_covering_kernel_configs,
    violations,
)
from flash_helpers.kernels.sm80_fwd.coverage import field_values, pairs_of, possible_pairs


def test_every_possible_pair_is_covered() -> None:
    covered = {pair for config in get_covering_kernel_configs() for pair in pairs_of(config)}
    assert possible_pairs() <= covered


def test_all_are_buildable_and_few() -> None:
    configs = get_covering_kernel_configs()
    assert all(not violations(config) for config in configs)
    assert len(set(configs)) == len(configs) <= 30


def test_it_is_not_covered_by_accident() -> None:
    """Every configuration is needed: without it some pair is missing."""
    configs = get_covering_kernel_configs()
    needed = 0
    for left_out in configs:
        covered = {p for c in configs if c != left_out for p in pairs_of(c)}
        needed += not possible_pairs() <= covered
    assert needed >= len(configs) // 2


@pytest.mark.parametrize("field", [f.name for f in fields(FlashForwardKernelConfig)])
def test_every_value_occurs(field: str) -> None:
    seen = {getattr(config, field) for config in get_covering_kernel_configs()}
    assert seen == set(field_values()[field])


def test_impossible_pairs_are_left_out_for_a_reason() -> None:
    all_pairs = {
        (a, x, b, y)
        for i, a in enumerate(field_values())
        for b in list(field_values())[i + 1 :]
        for x in field_values()[a]
        for y in field_values()[b]
    }
    impossible = all_pairs - possible_pairs()
    assert impossible == {
        ("B_r", 64, "n_warps", 8),  # a warp would own 8 rows
        ("B_c", 32, "V_mma_load_K_tiles", 4),  # 32 rows are two k-tiles
    }
