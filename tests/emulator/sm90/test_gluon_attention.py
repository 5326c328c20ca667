"""The Gluon attention kernels in the emulator: right under every schedule, without a race, and
wrong without any one of their synchronisations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flash_helpers.emulator import LaunchOptions, compare_schedules

from ..conformance.forms import forms_of
from .conformance.suite import forms_under_test
from .gluon_attention import FEW, GluonKernel, GluonProblem, Lengths, every_kernel
from .gluon_mutants import CAMPAIGN, attention_campaign
from .mutations import hopper_synchronisation

pytest.importorskip("triton", reason="Triton compiles the kernels")

LENGTHS = [Lengths(n, n) for n in (1, 63, 113, 127)] + [
    Lengths(203, 300, batch=2, heads=2, kv_heads=1),
    Lengths(300, 203, heads=3, kv_heads=3),
]


def _check(kernel: GluonKernel, lengths: Lengths, seed: int) -> None:
    problem = GluonProblem(kernel, lengths, seed)

    def run(options: LaunchOptions) -> list[Any]:
        o, report = problem.run(options)
        described = problem.comparison(o).describe()
        assert problem.is_right(o), (lengths, options.lane_order, described)
        needed = problem.needed()
        repeated = report.mma_instructions - needed.matrix_instructions
        assert repeated >= 0 if kernel.config.OPTIMISTIC else repeated == 0, (lengths, repeated)
        again = replace(needed, matrix_instructions=report.mma_instructions)
        assert again.wrong(report) == "", lengths
        return [o.float().numpy()]

    compare_schedules(run, seed)


@pytest.mark.parametrize("kernel", FEW, ids=str)
def test_right_under_every_schedule(kernel: GluonKernel, seed: int) -> None:
    for lengths in LENGTHS:
        _check(kernel, lengths, seed)
    assert set(forms_of(kernel.compiled().ptx)) <= forms_under_test()


def test_the_optimistic_kernel_multiplies_some_blocks_again(seed: int) -> None:
    """Else what it does then were not under test."""
    ordinary, optimistic = FEW[0], FEW[4]
    lengths = Lengths(203, 300)
    counts = [
        GluonProblem(kernel, lengths, seed).run()[1].mma_instructions
        for kernel in (ordinary, optimistic)
    ]
    assert counts[0] < counts[1]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", every_kernel(), ids=str)
def test_all_kernels(kernel: GluonKernel, seed: int) -> None:
    for lengths in LENGTHS:
        _check(kernel, lengths, seed)
    assert set(forms_of(kernel.compiled().ptx)) <= forms_under_test()


def test_a_few_mutants(seed: int) -> None:
    """`make mutants` plants all."""
    kernel = CAMPAIGN[0]
    mutants = hopper_synchronisation(kernel.compiled().ptx)
    outcome = attention_campaign(kernel, mutants[3 :: len(mutants) // 8], seed, n_random=4)
    print(outcome, outcome.found)
    assert outcome.survivors == [] and outcome.found.total() > 3


@pytest.mark.slow
@pytest.mark.parametrize("kernel", CAMPAIGN, ids=str)
def test_every_synchronisation_is_needed(kernel: GluonKernel, seed: int) -> None:
    mutants = hopper_synchronisation(kernel.compiled().ptx)
    assert len(mutants) > 100
    outcome = attention_campaign(kernel, mutants, seed)
    print(outcome, outcome.found)
    assert outcome.survivors == []
