"""Each step shows in its machine code what its entry says, and no two are the same by accident."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import pytest

from flash_helpers.kernels.history import load_steps
from flash_lab.sass.compare import Comparison
from flash_lab.sass.steps import Program, programs

from .claims import check_claim, check_steps

STEPS = load_steps()
# ptxas orders a basic block as it likes: step 5 differs from step 4 in PTX alone, as it says.
SAME_CODE = {(4, 5)}


@cache
def sm90() -> list[Program]:
    return programs("sm_90a")


def assert_all_claims_hold(found: list[Program]) -> None:
    results = check_steps(found)
    assert [result.step.number for result in results] == list(range(2, 17))
    assert all(result.verdicts for result in results)
    wrong = [
        f"step {result.step.number}: {verdict}"
        for result in results
        for verdict in result.verdicts
        if not verdict.holds
    ]
    assert wrong == []


def test_every_claim_holds_on_sm_90a() -> None:
    assert_all_claims_hold(sm90())


@pytest.mark.slow
def test_every_claim_holds_on_sm_80() -> None:
    assert_all_claims_hold(programs("sm_80"))


def test_no_two_steps_are_the_same_machine_code() -> None:
    same = {
        (a.number, b.number)
        for (a, p), (b, q) in itertools.combinations(zip(STEPS, sm90(), strict=True), 2)
        if Comparison(p.listing, q.listing, "kernel").identical
    }
    assert same == SAME_CODE


def test_step_5_is_another_program_for_nvcc() -> None:
    four, five = sm90()[3:5]
    shape = [
        [x.split(".")[0] for x in program.opcodes() if x.startswith(("ldmatrix", "mma"))]
        for program in (four, five)
    ]
    assert shape[0] != shape[1] and sorted(shape[0]) == sorted(shape[1])


def test_claims_fail_where_steps_are_exchanged() -> None:
    """The check checks: of every step's claims, one at least is false for the step before it."""
    for step, before in zip(STEPS[1:], sm90(), strict=False):
        verdicts = [check_claim(claim, before, before) for claim in step.shows]
        assert not all(verdict.holds for verdict in verdicts), f"step {step.number} says nothing"


def test_only_a_body_that_changed_leaves_its_claims(capsys: pytest.CaptureFixture[str]) -> None:
    """A regression in step 9's body, say a return to step 8's lane order, is told."""
    found = list(sm90())
    found[8] = replace(found[7], ptx=found[8].ptx)
    wrong = [result.step.number for result in check_steps(found) if not result.holds]
    assert 9 in wrong
