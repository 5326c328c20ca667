"""The machine code of all sixteen steps, and whether each shows what its entry says."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from flash_helpers.build.kernel_ptx import DEFAULT_ARCHITECTURE, kernel_ptx
from flash_helpers.kernels.history import load_steps
from flash_helpers.kernels.step import Step

from .claims import Program, Verdict, applies, check_claim
from .sources import compiled


@dataclass(frozen=True)
class StepVerdict:
    step: Step
    verdicts: tuple[Verdict, ...]

    @property
    def holds(self) -> bool:
        return all(verdict.holds for verdict in self.verdicts)


def program_of(step: Step, architecture: str = DEFAULT_ARCHITECTURE) -> Program:
    """Compiles what the cache does not have."""
    code = compiled([step.config], architecture)
    (listing,) = code.select([step.config.kernel_name()])
    usage = code.usage[listing.name, listing.architecture]
    return Program(listing, usage.registers, kernel_ptx(step.config))


def programs(architecture: str = DEFAULT_ARCHITECTURE, jobs: int = 2) -> list[Program]:
    """Of all steps in order; compilers run side by side."""
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        return list(pool.map(lambda step: program_of(step, architecture), load_steps()))


def check_steps(found: Sequence[Program]) -> list[StepVerdict]:
    """Every step but the first against the one before."""
    results = []
    for step, before, after in zip(load_steps()[1:], found, found[1:], strict=False):
        mine = [claim for claim in step.shows if applies(claim, after)]
        verdicts = tuple(check_claim(claim, before, after) for claim in mine)
        results.append(StepVerdict(step, verdicts))
    return results
