"""The Hopper family's backward kernels under every schedule: the same bits, the same work, no race;
and a few planted bugs (all of them: `make mutants`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flash_helpers.base.dtypes import DType
from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.emulator import schedules
from flash_helpers.kernel_configs import Variant
from flash_helpers.kernels.backward_args import row_stats_rows
from flash_helpers.kernels.backward_config import BackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_fused.config import FusedBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_fused.sets import get_fused_backward_kernel_configs

from .backward import BackwardProblem, clean_kernel
from .backward_campaign import FUSED_KERNELS, IN_ORDER, KERNELS, OTHERS, SMALL, campaign, check
from .campaign import EARLY, MEETING, OPTIONS
from .mutations import hopper_synchronisation, lost_arrivals, passed_waits

TRIED = (*KERNELS, *FUSED_KERNELS, *OTHERS)
QUEUED_EARLY = [c for c in get_fused_backward_kernel_configs() if c.dtype is DType.FP16]


@pytest.mark.parametrize(
    ("config", "variant"), TRIED, ids=[f"{config} {variant.value}" for config, variant in TRIED]
)
def test_every_schedule_gives_the_same_bits(
    config: BackwardKernelConfig, variant: Variant, seed: int
) -> None:
    assert check(config, variant, kernel_ptx(config, variant), seed, n_random=5) == ""


def test_a_head_has_the_same_bits_wherever_it_lies_in_the_grid(seed: int) -> None:
    """In order, with a mask: a whole section and a part of one, of equal heads; and a section that
    is not whole, if not all its keys begin at once, whose order is another."""
    config = IN_ORDER
    alone = BackwardProblem(config, 130, 6 * 128, causal=True, seed=seed)
    few, many = (
        BackwardProblem(config, 130, 6 * 128, heads, heads, causal=True) for heads in (22, 42 + 9)
    )
    for problem in (few, many):
        for name, array in problem.arrays.items():
            array[:] = alone.arrays[name]  # of one head
    n_sums = row_stats_rows(130) * config.d_head
    used = slice(3 * config.keys_columns * config.d_head)  # of 64 queries each

    def sums(problem: BackwardProblem) -> Any:
        found = problem.expected(Variant.KEYS)[0]["d_q_sums"].reshape(-1)
        return found[: n_sums * problem.heads].reshape(problem.heads, n_sums)[:, used]

    assert np.isfinite(sums(few)).all()
    assert (sums(few) == sums(few)[0]).all()
    assert (sums(many) == sums(few)[0]).all()


def test_heads_that_share_many_keys(seed: int) -> None:
    """In order, with a mask and more than five blocks of keys: heads take turns, and all blocks of
    keys come forwards."""
    problem = BackwardProblem(IN_ORDER, 130, 5 * 128 + 10, 4, 2, causal=True, seed=seed)
    kernel = clean_kernel(IN_ORDER, Variant.KEYS)
    options = [*schedules(seed, OPTIONS), *EARLY, MEETING]
    assert {problem.wrong(kernel, Variant.KEYS, option) for option in options} == {""}


def test_waits_that_are_over_and_arrivals_that_are_lost_are_found(seed: int) -> None:
    ptx = kernel_ptx(SMALL, Variant.QUERIES)
    mutants = [*passed_waits(ptx), *lost_arrivals(ptx)]
    assert 10 < len(mutants) < len(hopper_synchronisation(ptx))
    outcome = campaign(SMALL, Variant.QUERIES, mutants, seed, n_random=20)
    assert outcome.survivors == [] and outcome.found.total() == len(mutants)


@pytest.mark.parametrize(
    ("config", "variant"),
    [(config, variant) for config in QUEUED_EARLY for variant in config.built_variants()],
    ids=lambda part: str(getattr(part, "value", part)),
)
def test_kernels_that_are_queued_early_wait(
    config: FusedBackwardKernelConfig, variant: Variant
) -> None:
    """So that the emulator, too, takes them for such; and they let the next one begin."""
    text = kernel_ptx(config, variant)
    assert "griddepcontrol.wait;" in text
    assert ("griddepcontrol.launch_dependents;" in text) == (variant is Variant.DOTS)
