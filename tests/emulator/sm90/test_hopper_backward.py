"""The Hopper family's backward kernels under every schedule: the same bits, the same work, no race;
and a few planted bugs (all of them: `make mutants`)."""

from __future__ import annotations

import pytest

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.kernel_configs import Variant
from flash_helpers.kernels.backward_config import BackwardKernelConfig

from .backward_campaign import FUSED_KERNELS, KERNELS, OTHERS, SMALL, campaign, check
from .mutations import hopper_synchronisation, lost_arrivals, passed_waits

TRIED = (*KERNELS, *FUSED_KERNELS, *OTHERS)


@pytest.mark.parametrize(
    ("config", "variant"), TRIED, ids=[f"{config} {variant.value}" for config, variant in TRIED]
)
def test_every_schedule_gives_the_same_bits(
    config: BackwardKernelConfig, variant: Variant, seed: int
) -> None:
    assert check(config, variant, kernel_ptx(config, variant), seed, n_random=5) == ""


def test_waits_that_are_over_and_arrivals_that_are_lost_are_found(seed: int) -> None:
    ptx = kernel_ptx(SMALL, Variant.QUERIES)
    mutants = [*passed_waits(ptx), *lost_arrivals(ptx)]
    assert 10 < len(mutants) < len(hopper_synchronisation(ptx))
    outcome = campaign(SMALL, Variant.QUERIES, mutants, seed, n_random=20)
    assert outcome.survivors == [] and outcome.found.total() == len(mutants)
