"""Plants the chosen bugs of each family, in as many processes as are asked for, and reports."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from flash_helpers.base.paths import csrc_dir

from ..totals import Total
from .families import AFTER, FAMILIES
from .kernels import scratch
from .mutants import SourceMutant, chosen, headers_of, mutants_of
from .planting import Fate, Ground, distinct
from .redundant import reason_for
from .results import results

# How many bugs of a kind are planted in each header, of those that there are; "": of other kinds.
QUOTA = {
    "": 2, "deleted": 8, "order swapped": 6, "phase": 9, "condition negated": 4, "constant": 3,
    "operator": 3, "name": 3, "narrowed": 3, "arms swapped": 3,
}  # fmt: skip


@dataclass
class Outcome:
    family: str
    found: Counter[str] = field(default_factory=Counter)
    same: int = 0  # nvcc emits the same for every kernel
    explained: int = 0
    broken: int = 0
    repeated: int = 0
    missed: list[SourceMutant] = field(default_factory=list)
    needless: set[str] = field(default_factory=set)  # reasons for bugs that are found

    @property
    def total(self) -> Total:
        redundant = self.same + self.explained
        planted = self.found.total() + redundant + len(self.missed)
        return Total(planted, self.found.total(), redundant)

    def __str__(self) -> str:
        return (
            f"{self.family} sources: {self.total} ({self.same} of them the same PTX, "
            f"{self.explained} with a reason); besides, {self.broken} do not compile and "
            f"{self.repeated} make the same kernels as another"
        )


def all_mutants(family: str) -> list[SourceMutant]:
    """Whatever the generator makes of the family's headers."""
    elsewhere = {file for other in AFTER.get(family, ()) for file in _headers(other)}
    return [
        mutant
        for file in _headers(family)
        if file not in elsewhere
        for mutant in mutants_of(file, (csrc_dir() / "include/flash" / file).read_text())
    ]


def _headers(family: str) -> list[str]:
    units = {stage.kernel.unit for stage in FAMILIES[family]()}
    return headers_of(units, family, csrc_dir() / "include")


def some_mutants(family: str) -> list[SourceMutant]:
    """Those that are planted."""
    return chosen(all_mutants(family), family, QUOTA)


def fates(
    family: str, mutants: Sequence[SourceMutant], jobs: int
) -> Iterator[tuple[SourceMutant, Fate]]:
    """What becomes of each, in their order, as soon as it is known."""
    if jobs == 1:
        with ground(family) as place:
            yield from ((mutant, place.plant(mutant)) for mutant in mutants)
        return
    with tempfile.TemporaryDirectory(prefix="flash-sources-") as folder:
        # Not forked: torch's threads would be missing.
        spawned = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, spawned, _enter, (family, folder)) as pool:
            yield from zip(mutants, pool.map(_plant, mutants), strict=True)


@contextmanager
def ground(family: str, n_stages: int | None = None, folder: str | None = None) -> Iterator[Ground]:
    """Where bugs of a family are planted, in `folder`; `n_stages`: only for the first checks.
    Raises AssertionError if they find something where there is no bug."""
    kept = results()  # these two from the cache that stays
    stages = FAMILIES[family]()[:n_stages]
    for stage in stages:
        stage.kernel.ptx()
    with scratch(folder) as include:
        place = Ground(stages, include, kept)
        place.check_soundness()
        yield place


_process = ExitStack()  # of a process of the pool: is never closed, what it leaves is the pool's
_grounds: list[Ground] = []


def _enter(family: str, folder: str) -> None:
    _grounds.append(_process.enter_context(ground(family, folder=folder)))


def _plant(mutant: SourceMutant) -> Fate:
    return _grounds[0].plant(mutant)


def outcome_of(
    family: str, found: Iterable[tuple[SourceMutant, Fate]], verbose: bool = False
) -> Outcome:
    """Counts them. `verbose`: prints each as it comes."""
    outcome = Outcome(family)
    everything = list(_shown(found) if verbose else found)
    kept = list(distinct(everything))
    outcome.repeated = len(everything) - len(kept)
    used: set[str] = set()
    for mutant, fate in kept:
        reason = reason_for(family, mutant)
        if reason and fate.compiles:
            (outcome.needless if fate.found else used).add(str(reason))
        if not fate.compiles:
            outcome.broken += 1
        elif fate.found:
            outcome.found[fate.found] += 1
        elif not fate.trail:
            outcome.same += 1
        elif reason:
            outcome.explained += 1
        else:
            outcome.missed.append(mutant)
    outcome.needless -= used
    return outcome


def _shown(found: Iterable[tuple[SourceMutant, Fate]]) -> Iterator[tuple[SourceMutant, Fate]]:
    for mutant, fate in found:
        words = fate.found or ("nothing" if fate.trail else "the same PTX")
        print(f"{words:>24}  {mutant}", flush=True)
        yield mutant, fate
