"""The Hopper family's attention kernels in the emulator: right under every schedule, without a
race, and wrong without any one of their synchronisations."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.emulator import LaunchOptions, compare_schedules, compile_kernel, schedules
from flash_helpers.kernel_configs import (
    HopperForwardKernelConfig,
    get_hopper_kernel_configs,
    get_hopper_smoke_kernel_configs,
)
from flash_helpers.kernels.sm90_fwd.config import MaxPolicy
from tests.machine import slowness

from ..conformance.forms import forms_of
from ..mutations import removed
from ..work import TOO_MUCH
from .attention import (
    TOLERANCE,
    HopperProblem,
    crowded_problems,
    ends_with_a_block,
    overflowing,
    problems,
    spiked,
)
from .campaign import AHEAD, CONFIGS, EARLY, LAZY, MEETING, TWO_Q, campaign
from .conformance.suite import forms_under_test
from .gemm import hopper_ptx
from .mutations import hopper_synchronisation, unannounced_bytes, weakened_waits
from .rare_runs import rising, votes, wrong_lag
from .work import rare_work

ALL = sorted({*CONFIGS, *get_hopper_kernel_configs(), *get_hopper_smoke_kernel_configs()})
WARM_BAR = 0.060  # CPU seconds for one head of 256 x 128


def _check(config: HopperForwardKernelConfig, chosen: Iterable[HopperProblem], seed: int) -> None:
    kernel = compile_kernel(kernel_ptx(config), config.kernel_name())
    for problem in chosen:

        def run(options: LaunchOptions, problem: HopperProblem = problem) -> list[Any]:
            o, lse, report = problem.run(kernel, options)
            wrong = problem.wrong(o, lse, report)
            assert not wrong, (wrong, config, problem, options.lane_order)
            return [o, lse]

        compare_schedules(run, seed)


def test_right_under_every_schedule(seed: int) -> None:
    _check(LAZY, problems(LAZY, seed), seed)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_each_kind_of_kernel_under_every_schedule(
    config: HopperForwardKernelConfig, seed: int
) -> None:
    """Optimistic softmax, three groups, staging in Q's buffer, other head dimensions: by problems
    that take all branches of the softmax in few blocks."""
    chosen = [make(config, seed) for make in (ends_with_a_block, overflowing, spiked)]
    if config.max_policy is MaxPolicy.OPTIMISTIC:
        assert all(rare_work(problem).events > 0 for problem in chosen[1:])
    _check(config, chosen, seed)


def test_groups_that_run_ahead(seed: int) -> None:
    """By a tile: a group that waits for another buffer than it releases may then release it for the
    phase before, in which others still read."""
    kernel = compile_kernel(kernel_ptx(AHEAD), AHEAD.kernel_name())
    problem = crowded_problems(AHEAD, seed)[0]
    for options in (*schedules(seed), *EARLY, MEETING):
        assert problem.wrong(*problem.run(kernel, options)) == "", options


@pytest.mark.parametrize("config", [c for c in CONFIGS if c.max_policy is MaxPolicy.OPTIMISTIC])
def test_a_row_without_a_key_in_the_first_block(
    config: HopperForwardKernelConfig, seed: int
) -> None:
    """An optimistic step cannot follow it: there is no maximum yet."""
    problem = ends_with_a_block(config, seed)
    kernel = compile_kernel(kernel_ptx(config), config.kernel_name())
    assert problem.wrong(*problem.run(kernel)) == ""


@pytest.mark.parametrize("config", [c for c in CONFIGS if c.max_policy is MaxPolicy.OPTIMISTIC])
def test_scores_multiplied_again_where_a_correction_would_do(
    config: HopperForwardKernelConfig, seed: int
) -> None:
    """Right, but for the work."""
    problem = overflowing(config, seed)
    # The largest sum of exponentials that is corrected: 1 in place of 2^100.
    repairing = kernel_ptx(config).replace("0f71800000", "0f3F800000")
    o, lse, report = problem.run(compile_kernel(repairing, config.kernel_name()))
    assert problem.error(o, lse) <= TOLERANCE
    assert TOO_MUCH in problem.wrong(o, lse, report)


@pytest.mark.parametrize("growing", [False, True])
def test_how_often_m_rises(growing: bool, seed: int) -> None:
    """On random keys seldom, on growing ones more often than not; and a limit that is always 1 is
    seen by nothing but the count."""
    config = next(c for c in CONFIGS if c.max_policy is MaxPolicy.OPTIMISTIC and not c.ping_pong)
    problem = rising(config, growing, seed)
    rare, ptx = rare_work(problem), kernel_ptx(config)
    assert votes(problem, compile_kernel(ptx, config.kernel_name())) == (True, rare.votes)
    assert (rare.events > rare.steps / 2) == growing
    factor = np.float32(1.5 * config.block_n).view(np.uint32)
    always = ptx.replace(f"0f{factor:08X}", "0f00000000")
    right, found = votes(problem, compile_kernel(always, config.kernel_name()))
    assert right and found != rare.votes


def test_small_growth_costs_nothing(seed: int) -> None:
    assert wrong_lag(LAZY, compile_kernel(kernel_ptx(LAZY), LAZY.kernel_name()), seed) == ""


@pytest.mark.slow
@pytest.mark.parametrize("config", ALL, ids=str)
def test_all_kernels(config: HopperForwardKernelConfig, seed: int) -> None:
    _check(config, [*problems(config, seed), overflowing(config, seed), spiked(config, seed)], seed)


def _untested_forms(configs: Iterable[HopperForwardKernelConfig]) -> set[str]:
    texts = [hopper_ptx("gemm.cu"), *map(kernel_ptx, configs)]
    return {form for text in texts for form in forms_of(text)} - forms_under_test()


def test_every_form_occurs_in_a_micro_kernel() -> None:
    assert _untested_forms([LAZY, TWO_Q]) == set()


@pytest.mark.slow
def test_every_form_of_all_kernels_occurs_in_a_micro_kernel() -> None:
    assert _untested_forms(ALL) == set()


def test_blocks_share_the_tiles(seed: int) -> None:
    """A grid smaller than the tiles, and as large: the same bits."""
    kernel = compile_kernel(kernel_ptx(LAZY), LAZY.kernel_name())
    outputs = []
    for grid in (1, 3, 6):
        problem = HopperProblem(LAZY, 300, 200, 2, 1, causal=True, grid=grid, seed=seed)
        o, lse, report = problem.run(kernel)
        assert problem.wrong(o, lse, report) == ""
        outputs.append(o.tobytes() + lse.tobytes())
    assert len(set(outputs)) == 1


def test_a_head_takes_less_than_the_bar(seed: int) -> None:
    config = replace(LAZY, d_head=128, block_n=128)
    kernel = compile_kernel(kernel_ptx(config), config.kernel_name())
    problem = HopperProblem(config, 256, 256, seed=seed)
    times = []
    for _ in range(5):
        start = time.process_time()
        outputs = problem.run(kernel, LaunchOptions(workers=1))
        times.append(time.process_time() - start)
        assert problem.wrong(*outputs) == ""
    print(f"{min(times) * 1e3:.1f} ms with the race detector")
    assert min(times) < WARM_BAR * slowness()


def test_a_few_mutants(seed: int) -> None:
    """`make mutants` plants all. A missing fence changes no result and blocks nobody here: the race
    detector alone sees it."""
    ptx = kernel_ptx(LAZY)
    fences = removed(ptx, "fence.proxy.async")
    assert len(fences) >= 2
    mutants = [
        *weakened_waits(ptx)[:2],
        *unannounced_bytes(ptx)[:2],
        *hopper_synchronisation(ptx)[:2],
        *fences,
    ]
    outcome = campaign(LAZY, mutants, seed, n_random=5)
    print(outcome, outcome.found)
    assert outcome.survivors == [] and outcome.redundant == 0
    assert outcome.found["race detector"] >= len(fences)


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_synchronisation_is_needed(config: HopperForwardKernelConfig, seed: int) -> None:
    mutants = hopper_synchronisation(kernel_ptx(config))
    assert len(mutants) > 50
    outcome = campaign(config, mutants, seed)
    print(outcome, outcome.found)
    assert outcome.survivors == []
