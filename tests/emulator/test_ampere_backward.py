"""The Ampere family's fused backward kernels under every schedule, and without their
synchronisation."""

from __future__ import annotations

import pytest

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.kernels.backward_config import BackwardKernelConfig
from flash_helpers.kernels.contract import Variant

from .backward_campaign import KERNELS, NARROW, campaign, mutants_of
from .sm90.backward_campaign import check
from .totals import SM80_FUSED

IDS = [f"{config} {variant.value}" for config, variant in KERNELS]


@pytest.mark.parametrize(("config", "variant"), KERNELS, ids=IDS)
def test_every_schedule_gives_the_same_bits(
    config: BackwardKernelConfig, variant: Variant, seed: int
) -> None:
    assert check(config, variant, kernel_ptx(config, variant), seed, n_random=5) == ""


def test_barriers_that_are_removed_are_found(seed: int) -> None:
    """Those of all threads and those of a pair, and each half of those that have two."""
    kernel = NARROW, Variant.KEYS
    kinds = ("bar.sync", "mbarrier wait passed", "arrival lost")
    mutants = [m for m in mutants_of(kernel) if m.name.startswith(kinds)]
    assert len(mutants) == 5 + 2 + 2
    outcome = campaign(kernel, mutants, seed, n_random=5)
    assert outcome.survivors == [] and outcome.found.total() == len(mutants)


def test_as_many_mutants_as_recorded() -> None:
    """Without running them."""
    assert SM80_FUSED.planted == sum(len(mutants_of(kernel)) for kernel in KERNELS)
