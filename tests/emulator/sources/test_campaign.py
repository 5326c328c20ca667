"""Bugs planted in the kernels' sources: a few of each kind are found, and what becomes of one is
counted as what it is. `make mutants` plants the others."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from . import redundant
from .__main__ import main
from .campaign import QUOTA, all_mutants, ground, outcome_of, some_mutants
from .kernels import digest
from .mutants import SourceMutant
from .planting import BROKEN, Fate, lines_of
from .redundant import REASONS, Reason, reason_for
from .results import Results

made = functools.cache(all_mutants)


def mutant_of(family: str, file: str, kind: str, before: str, after: str = "") -> SourceMutant:
    return next(
        mutant
        for mutant in made(family)
        if (mutant.file, mutant.kind) == (file, kind)
        and before in mutant.before
        and after in mutant.after
    )


FEW = {
    "sm80": (
        ("sm80/forward/forward.cuh", "deleted", "load_wait<kConfig, 1>();"),
        ("sm80/forward/bounds.cuh", "operator", "score = n * 8 + i < keys", "<= keys"),
        ("sm80/forward/epilogue.cuh", "arguments swapped", "Tile::offset(lane / 4, n)"),
        ("tile/visible.cuh", "arms swapped", "return causal ?"),
    ),
    "sm90": (
        ("sm90/forward/kv_blocks.cuh", "order swapped", "Mm::template wait<0>(o); release_v();"),
        ("sm90/forward/kv_blocks.cuh", "phase", "smem.v_full(v_ring.buffer)"),
        ("sm90/forward/producer.cuh", "name", "smem.k_empty(k_ring.buffer)", "k_full"),
        ("sm90/forward/forward.cuh", "constant", "mbarrier_init(smem.q_full(buffer, group), 1)"),
        ("ptx/fence.cuh", "deleted", "fence.proxy.async"),
    ),
    "sm80_serve": (
        ("sm80_serve/parts.cuh", "constant", "round.n - 1"),
        ("sm80_serve/shares.cuh", "operator", "end = min(begin + each, all.units);"),
        ("tile/key_range.cuh", "constant", "place + right + 1"),
    ),
}


@pytest.mark.parametrize("family", FEW)
def test_a_few_are_found(family: str) -> None:
    """By the first checks."""
    with ground(family, n_stages=1) as place:
        for words in FEW[family]:
            fate = place.plant(mutant_of(family, *words))
            assert fate.found not in ("", BROKEN), words
            assert len(fate.trail) == 1


def test_what_nvcc_makes_the_same_of_and_what_it_refuses() -> None:
    with ground("sm90", n_stages=1) as place:
        same = mutant_of("sm90", "sm90/ring.cuh", "order swapped", "buffer = 0; parity ^= 1;")
        assert place.plant(same) == Fate("", ())
        assert place.plant(replace(same, text="no C++")) == Fate(BROKEN, ())


def a_mutant(line: int, kind: str = "constant") -> SourceMutant:
    return SourceMutant("a.cuh", "f", kind, f"f({line});", "f(9);", line, "")


def test_each_counts_as_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        redundant, "REASONS", (Reason("sm80", "a.cuh", "f", "f(5);", "f(9);", "the same"),)
    )
    fates = (
        (a_mutant(1), Fate("RaceError", (("kernel", "x"),))),
        (a_mutant(2), Fate(BROKEN, ())),
        (a_mutant(3), Fate("", ())),
        (a_mutant(4), Fate("RaceError", (("kernel", "x"),))),  # as the first
        (a_mutant(5), Fate("", (("kernel", "y"),))),
        (a_mutant(6), Fate("", (("kernel", "z"),))),
        (a_mutant(7), Fate("", ())),  # the same PTX, again: not the same bug
    )
    outcome = outcome_of("sm80", fates)
    assert str(outcome.total) == "planted 5 found 1 redundant 3"
    assert (outcome.same, outcome.explained, outcome.broken, outcome.repeated) == (2, 1, 1, 1)
    assert outcome.found == Counter({"RaceError": 1}) and outcome.missed == [a_mutant(6)]


def test_a_reason_is_for_its_family_and_place() -> None:
    reason = Reason("sm90", "a.cuh", "f", "f(1);", "deleted", "")
    assert reason.explains("sm90", a_mutant(1, "deleted"))
    assert not reason.explains("sm80", a_mutant(1, "deleted"))
    assert not reason.explains("sm90", a_mutant(1)) and not reason.explains("sm90", a_mutant(2))
    assert reason_for("sm90", a_mutant(1, "deleted"), [reason]) is reason
    assert reason_for("sm90", a_mutant(1), [reason]) is None


@pytest.mark.parametrize("reason", REASONS, ids=lambda r: f"{r.file} {r.before} {r.after}")
def test_every_reason_is_for_a_bug_that_is_made(reason: Reason) -> None:
    families = [reason.family] if reason.family else list(FEW)
    assert any(reason.explains(family, m) for family in families for m in made(family))


def test_kernels_are_compared_without_places() -> None:
    with_places = (
        '\t.file 1 "/x/flash/a.cuh"\n\t.loc 1 7 3, function_name $L, inlined_at 1 9 5\nret;\n'
    )
    assert digest(with_places) == digest("ret;\n") != digest("trap;\n")
    assert digest("ret;\n.section .debug_str\n{\n$L: .b8 97,0\n}\n") == digest("ret;\n")
    assert lines_of(with_places) == {("a.cuh", 7), ("a.cuh", 9)}


def test_what_is_known_is_not_found_again(tmp_path: Path) -> None:
    kept, calls = Results(tmp_path), []

    def make() -> str:
        calls.append(1)
        return "nothing"

    assert [kept.kept(make, "a", "b") for _ in range(3)] == ["nothing"] * 3
    kept.kept(make, "ab")
    assert len(calls) == 2


def test_enough_are_planted() -> None:
    planted = {family: some_mutants(family) for family in FEW}
    assert all(len(mutants) > 300 for mutants in planted.values())
    kinds = Counter(mutant.kind for mutants in planted.values() for mutant in mutants)
    assert {*QUOTA} - {""} <= set(kinds) and min(kinds.values()) > 5


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sm90", "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == len(some_mutants("sm90")) and "sm90/ring.cuh" in "".join(listed)
    for arguments in (["sm70"], ["--jobs", "0"]):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 2
