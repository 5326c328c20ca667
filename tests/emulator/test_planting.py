"""The loop of all mutation campaigns, on a kernel that copies a word."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from flash_helpers.emulator import compile_kernel

from .mutations import Mutant
from .planting import WRONG, Outcome, plant, report, sum_of
from .support import aligned, ptx_kernel, run
from .together import compiled_together
from .totals import Total

PTX = ptx_kernel("ld.global.u32 %r0, [%p0];\nadd.u32 %r0, %r0, 0;\nst.global.u32 [%p1], %r0;")
LINE = 1 + PTX.splitlines().index("add.u32 %r0, %r0, 0;")


def _mutant(name: str, instead: str) -> Mutant:
    return Mutant(name, LINE, PTX.replace("add.u32 %r0, %r0, 0;", instead))


MUTANTS = [
    _mutant("nothing", ""),
    _mutant("another number", "add.u32 %r0, %r0, 1;"),
    # Not at a 64-byte boundary, where the other array might begin.
    _mutant("outside", "ld.global.u32 %r0, [%p1+4];"),
]


def _check(ptx: str) -> str:
    given, out = aligned(1, np.uint32), aligned(1, np.uint32)
    given[0] = 5
    run(compile_kernel(ptx, "kernel"), [given, out], block=1)
    return "" if out[0] == 5 else WRONG


def test_what_is_not_found_survives() -> None:
    outcome = plant(PTX, "kernel", MUTANTS, _check)
    assert outcome.found == {"OutOfBoundsError": 1} and outcome.redundant == 0
    place = f"PTX line {LINE} at PTX line {LINE}"
    assert outcome.survivors == [
        f"kernel: nothing, {place}: nothing",
        f"kernel: another number, {place}: wrong result",
    ]


def test_a_wrong_result_may_be_enough() -> None:
    outcome = plant(PTX, "kernel", MUTANTS, _check, by_reports=False)
    assert outcome.found == {"OutOfBoundsError": 1, WRONG: 1} and len(outcome.survivors) == 1


def test_a_proof_is_asked_for_what_is_not_found() -> None:
    asked = []

    def explains(mutant: Mutant, texts: list[str]) -> bool:
        asked.append((mutant.name, texts))
        return mutant.name == "nothing"

    outcome = plant(PTX, "kernel", MUTANTS, _check, sources=lambda _: ["a"], explains=explains)
    assert asked == [("nothing", ["a"]), ("another number", ["a"])]
    assert str(outcome) == "planted 3 found 1 redundant 1"
    (survivor,) = outcome.survivors
    assert survivor.endswith("wrong result; ['a']")


def test_what_differs_in_a_few_lines_is_compiled_together() -> None:
    """The others stay what they are: here one with a label, and one with a register of a type that
    the kernel has none of."""
    label = _mutant("a jump", "bra.uni behind; add.u32 %r0, %r0, 2; behind:")
    typed = _mutant("a type", "cvt.f64.u32 %d0, 7; cvt.rzi.u32.f64 %r0, %d0;")
    three = _mutant("three", "add.u32 %r1, %r0, 3; mov.u32 %r0, %r1;")
    nine = Mutant("nine", LINE + 1, PTX.replace("[%p1], %r0", "[%p1], 9"))
    texts = [mutant.ptx for mutant in (three, label, MUTANTS[1], typed, nine)]

    def results() -> list[int]:
        given, out = aligned(1, np.uint32), aligned(16, np.uint32)
        given[0] = 5
        for text, place in zip(texts, (out[i:] for i in range(len(texts))), strict=True):
            run(compile_kernel(text, "kernel"), [given, place[:1]], block=1)
        return [int(value) for value in out[: len(texts)]]

    one_by_one = results()
    assert one_by_one == [8, 5, 6, 7, 9]
    with compiled_together(PTX, "kernel", texts) as alone:
        assert alone == [label.ptx, typed.ptx]
        assert results() == one_by_one


def test_the_unmutated_kernel_must_pass() -> None:
    with pytest.raises(AssertionError, match="must pass, not end in: wrong result"):
        plant(MUTANTS[1].ptx, "kernel", MUTANTS, _check)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([Outcome(2, Counter(a=1), 1, [])], 0),
        ([Outcome(2, Counter(a=1), 1, []), Outcome(1, Counter(), 0, ["x"])], 1),
        ([Outcome(2, Counter(a=1), 1, []), Outcome(0, Counter(), 0, [])], 1),
        ([], 1),
    ],
)
def test_exit_codes(outcomes: list[Outcome], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert report((f"title {i}", outcome) for i, outcome in enumerate(outcomes)) == code
    printed = capsys.readouterr().out.splitlines()
    survivors = [name for outcome in outcomes for name in outcome.survivors]
    assert [line for line in printed if "SURVIVED" in line] == [f"SURVIVED {x}" for x in survivors]
    assert sum_of(outcomes).planted == sum(outcome.planted for outcome in outcomes)
    assert printed[-1].startswith(f"planted {sum(outcome.planted for outcome in outcomes)} found")


def test_another_total_than_recorded_fails(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = [("a", Outcome(2, Counter(a=1), 1, [])), ("b", Outcome(1, Counter(b=1), 0, []))]
    assert report(outcomes, Total(3, 2, 1)) == 0
    assert capsys.readouterr().out.endswith("planted 3 found 2 redundant 1\n")
    for recorded in (Total(4, 2, 1), Total(3, 3, 0)):
        assert report(outcomes, recorded) == 1
        assert f"RECORDED {recorded}" in capsys.readouterr().out
