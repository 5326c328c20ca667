"""Plants bugs in the PTX of a kernel, runs each under a check, and counts what found them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from flash_helpers.emulator import KernelError, RaceError, compile_kernels
from flash_helpers.emulator.door.source_lines import SourceLines, SourceLocation

from .mutations import Mutant
from .together import compiled_together
from .totals import Total

WRONG = "wrong result"


@dataclass
class Outcome:
    """`found` counts by what found it; `survivors` are descriptions."""

    planted: int
    found: Counter[str]
    redundant: int
    survivors: list[str]

    @property
    def total(self) -> Total:
        return Total(self.planted, self.found.total(), self.redundant)

    def __str__(self) -> str:
        return str(self.total)


def plant(
    ptx: str,
    entry: str,
    mutants: Sequence[Mutant],
    check: Callable[[str], str],
    *,
    by_reports: bool = True,
    sources: Callable[[SourceLocation], list[str]] = lambda place: [],
    explains: Callable[[Mutant, list[str]], bool] = lambda mutant, texts: False,
) -> Outcome:
    """`check` runs a PTX text; it raises as the emulator does, or returns what is wrong with the
    results, '' for nothing. `by_reports`: WRONG is not enough, an error must name the place.
    `sources`: the source lines of a place. `explains`: whether there is a proof that the mutant,
    at those lines, changes nothing; asked for what the check does not find."""
    if by := _found_by(check, ptx):
        raise AssertionError(f"{entry}: the unmutated kernel must pass, not end in: {by}")
    outcome = Outcome(len(mutants), Counter(), 0, [])
    lines = SourceLines(ptx)
    places = [lines.locate(mutant.line) for mutant in mutants]
    # Before the campaign takes its time, in which somebody may edit the files.
    texts = [sources(place) for place in places]
    with compiled_together(ptx, entry, [mutant.ptx for mutant in mutants]) as alone:
        compile_kernels([(text, entry) for text in alone])
        found_by = [_found_by(check, mutant.ptx) for mutant in mutants]
    for mutant, place, text, by in zip(mutants, places, texts, found_by, strict=True):
        if by and not (by_reports and by == WRONG):
            outcome.found[by] += 1
        elif explains(mutant, text):
            outcome.redundant += 1
        else:
            shown = f"; {text}" if text else ""
            outcome.survivors.append(f"{entry}: {mutant} at {place}: {by or 'nothing'}{shown}")
    return outcome


def _found_by(check: Callable[[str], str], ptx: str) -> str:
    """A race report, another error, the results, or nothing ('')."""
    try:
        return check(ptx)
    except RaceError:
        return "race detector"
    except KernelError as error:
        return type(error).__name__


class Counted(Protocol):
    @property
    def total(self) -> Total: ...


def sum_of(outcomes: Iterable[Counted]) -> Total:
    totals = [outcome.total for outcome in outcomes]
    return Total(*map(sum, zip(*totals, strict=True))) if totals else Total(0, 0, 0)


def report(campaigns: Iterable[tuple[str, Outcome]], recorded: Total | None = None) -> int:
    """Prints each outcome under its title as soon as it is there, then their sum. Returns the exit
    code: 1 if a mutant survived, if there were none to plant, or if the sum is not as recorded."""
    outcomes, found = [], Counter[str]()
    for title, outcome in campaigns:
        print(f"{title}: {outcome}", flush=True)
        for survivor in outcome.survivors:
            print(f"SURVIVED {survivor}", flush=True)
        outcomes.append(outcome)
        found += outcome.found
    print("found by: " + ", ".join(f"{by} {n}" for by, n in found.most_common()))
    total = sum_of(outcomes)
    print(total)
    passed = outcomes and all(o.planted and not o.survivors for o in outcomes)
    if recorded is not None and total != recorded:
        print(f"RECORDED {recorded}: mend tests/emulator/totals.py and the README that quotes it")
        return 1
    return 0 if passed else 1
