"""Mutation campaign for Hopper's attention kernels: every synchronisation removed or weakened in turn.

`make mutants` runs it behind the Ampere family's and fails if a mutant survives that REDUNDANT does
not explain. A wrong result is not enough: an error must name the place.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flash_helpers.emulator import (
    KernelError,
    LaunchOptions,
    RaceError,
    compile_kernel,
    compile_kernels,
    schedules,
)
from flash_helpers.emulator.door.source_lines import SourceLines

from ..campaign import TOLERANCE, Outcome
from ..mutations import Mutant
from .attention import ENTRY, HopperConfig, problems
from .mutations import hopper_synchronisation

OPTIONS = LaunchOptions(workers=1, max_backward_branches=1 << 16)

LAZY = HopperConfig()
THREE_GROUPS = HopperConfig(d_head=64, n_mma_groups=3, max_policy=0, o_in_q=True)
TILE_OVERLAP = HopperConfig(
    block_n=96, n_q_buffers=2, max_policy=2, tile_overlap=True, n_buffers=2, d_head=64
)
SEPARATE = HopperConfig(d_head=96, block_n=144, overlap=False)
CONFIGS = (LAZY, THREE_GROUPS, TILE_OVERLAP, SEPARATE)


@dataclass(frozen=True)
class Redundant:
    """Mutants that change nothing, with the proof. `line` is in the text of one of the source lines
    that the place was inlined through."""

    mutant: str  # how Mutant.name begins
    line: str
    proof: str
    when: Callable[[HopperConfig], bool] = lambda config: True

    def explains(self, config: HopperConfig, mutant: Mutant, source: Sequence[str]) -> bool:
        return (
            mutant.name.startswith(self.mutant)
            and any(self.line in text for text in source)
            and self.when(config)
        )


REDUNDANT: tuple[Redundant, ...] = ()


def source_texts(lines: SourceLines, ptx_line: int) -> list[str]:
    """The source lines that an instruction was inlined through, innermost first."""
    frames = lines.locate(ptx_line).frames
    return [_lines_of(path)[number - 1] for path, number in frames if Path(path).exists()]


@functools.cache
def _lines_of(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def verdict(config: HopperConfig, ptx: str, seed: int) -> str:
    """What finds the mutant: a race report, another error, the result, or nothing ('')."""
    kernel = compile_kernel(ptx, ENTRY)
    wrong = ""
    for problem in problems(config, seed):
        for options in schedules(seed, OPTIONS):
            try:
                o, lse, _ = problem.run(config, kernel, options)
            except RaceError:
                return "race detector"
            except KernelError as error:
                return type(error).__name__
            if not problem.error(o, lse) <= TOLERANCE:
                wrong = "wrong result"
    return wrong


def campaign(config: HopperConfig, mutants: list[Mutant], seed: int) -> Outcome:
    ptx = config.ptx()
    if by := verdict(config, ptx, seed):
        raise AssertionError(f"{config}: the unmutated kernel must pass, not end in: {by}")
    compile_kernels([(mutant.ptx, ENTRY) for mutant in mutants])
    outcome = Outcome(len(mutants), Counter(), 0, [])
    lines = SourceLines(ptx)
    for mutant in mutants:
        by = verdict(config, mutant.ptx, seed)
        texts = source_texts(lines, mutant.line)
        if by and by != "wrong result":
            outcome.found[by] += 1
        elif any(r.explains(config, mutant, texts) for r in REDUNDANT):
            outcome.redundant += 1
        else:
            place = lines.locate(mutant.line)
            outcome.survivors.append(f"{mutant} at {place}: {by or 'nothing'}; {texts}")
    return outcome


def main() -> int:
    survivors = 0
    for config in CONFIGS:
        outcome = campaign(config, hopper_synchronisation(config.ptx()), seed=1)
        print(f"sm90 {config} synchronisation: {outcome}", flush=True)
        for survivor in outcome.survivors:
            print(f"SURVIVED {survivor}", flush=True)
        survivors += len(outcome.survivors) + (outcome.planted == 0)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
