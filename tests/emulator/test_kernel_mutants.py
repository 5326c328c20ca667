"""A test of the tester: bugs planted in the PTX of the real kernels, every one of which must be
found. `make mutants` plants all; here are the synchronisation of four kernels and a few others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.kernel_configs import FlashForwardKernelConfig
from flash_helpers.kernels.contract import Variant

from .campaign import EAGER, FAMILIES, LAZY, THROUGH_REGISTERS, campaign, full_campaign
from .mask_mutations import bounds_and_masks
from .mutations import Mutant, arithmetic_and_addressing, synchronisation
from .planting import sum_of
from .totals import SM80


@pytest.mark.parametrize(
    ("config", "minimum"),
    [(EAGER, 22), (LAZY, 13), (THROUGH_REGISTERS, 4)],
    ids=["eager", "lazy", "through registers"],
)
def test_every_synchronisation_is_needed(
    config: FlashForwardKernelConfig, minimum: int, seed: int
) -> None:
    mutants = synchronisation(kernel_ptx(config))
    assert len(mutants) >= minimum  # an empty list of mutants would prove nothing
    outcome = campaign(config, mutants, seed, by_reports=True)
    print(outcome)
    assert outcome.survivors == []
    assert outcome.found["race detector"] > len(mutants) / 2


def test_arithmetic_and_addressing(seed: int) -> None:
    config = replace(EAGER, d_head=64)  # the same bugs in half as much code
    mutants = arithmetic_and_addressing(kernel_ptx(config), row_bytes=128, n_swizzles=4)
    assert len({mutant.name for mutant in mutants}) == 16
    outcome = campaign(config, mutants, seed)
    print(outcome, outcome.found)
    assert outcome.survivors == []
    assert outcome.found["wrong result"] > 10  # the numbers, too, find what they must


def test_bounds_and_masks(seed: int) -> None:
    """Of a general kernel, one of each kind."""
    config = FAMILIES[0].general[0]
    mutants = bounds_and_masks(kernel_ptx(config, Variant.ANY), count=2)
    kinds: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        kinds.setdefault(mutant.name, []).append(mutant)
    assert len(kinds) == 9
    some = [kind[len(kind) // 2] for kind in kinds.values()]
    outcome = campaign(config, some, seed, general=True)
    print(outcome, outcome.found)
    assert outcome.survivors == []
    assert {"wrong result", "OutOfBoundsError"} <= set(outcome.found)


@pytest.mark.slow
def test_all_mutants(seed: int) -> None:
    outcomes = [o for family in FAMILIES for _, o in full_campaign(family, seed)]
    assert [survivor for outcome in outcomes for survivor in outcome.survivors] == []
    assert all(outcome.planted for outcome in outcomes)
    assert sum_of(outcomes) == SM80  # which the README quotes; whatever the seed, as all are found
