"""Mutation campaigns: bugs planted in the PTX of real kernels, run under every check there is.

`make mutants` (`python -m tests.emulator.campaign`) plants all of them and fails if one survives
that REDUNDANT does not explain.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from flash_helpers.emulator import (
    KernelError,
    LaunchOptions,
    RaceError,
    compile_kernel,
    compile_kernels,
    schedules,
)
from flash_helpers.emulator.translator.source_lines import SourceLines
from flash_helpers.kernel_configs import DType, FlashForwardKernelConfig, get_sm80_kernel_configs
from flash_helpers.kernel_ptx import kernel_ptx

from .attention import Problem
from .mask_mutations import bounds_and_masks
from .mutations import Mutant, arithmetic_and_addressing, synchronisation

TOLERANCE = 1.25  # eps, the row rule
LSE_TOLERANCE = 1e-4
OPTIONS = LaunchOptions(max_backward_branches=1 << 16)

EAGER = FlashForwardKernelConfig(
    DType.FP16, 128, 64, 64, 4, True, True, True, 0, 2, 2, True, True
)  # fmt: skip
LAZY = replace(
    EAGER, eager_load_blocks=False, optimized_softmax=False, mma_double_buffer_loads=False
)
THROUGH_REGISTERS = replace(LAZY, async_copy=False, dtype=DType.BF16)
WIDE = replace(EAGER, dtype=DType.BF16, d_head=64, B_r=128, Q_mma_load_K_tiles=2)


@dataclass(frozen=True)
class Family:
    """One family of kernels: which of them get which mutants."""

    name: str
    synchronisation: Callable[[], Iterable[FlashForwardKernelConfig]]
    arithmetic: tuple[FlashForwardKernelConfig, ...]
    general: tuple[FlashForwardKernelConfig, ...]  # the kernels for any lengths and causal


# A new family adds a line here, and its instructions to `synchronisation` in mutations.py.
FAMILIES = (
    Family(
        "sm80",
        lambda: sorted({EAGER, LAZY, THROUGH_REGISTERS, WIDE, *get_sm80_kernel_configs("pairs")}),
        (EAGER, LAZY, THROUGH_REGISTERS, WIDE),
        tuple(replace(c, d_head=64, B_r=128) for c in (WIDE, LAZY, THROUGH_REGISTERS)),
    ),
)


@dataclass(frozen=True)
class Redundant:
    """Mutants that change nothing, each with the proof. None of the Ampere family's: the first run
    found a barrier that ordered nothing, which the kernel has lost since."""

    mutant: str  # Mutant.name
    source: str  # in the source position
    proof: str


REDUNDANT: tuple[Redundant, ...] = ()


@dataclass
class Outcome:
    """`found` counts by what found it; `survivors` are descriptions."""

    planted: int
    found: Counter[str]
    redundant: int
    survivors: list[str]

    def __str__(self) -> str:
        return f"planted {self.planted} found {self.found.total()} redundant {self.redundant}"


def verdict(problems: Sequence[Problem], ptx: str, name: str, seed: int) -> str:
    """What finds the mutant: a race report, another error, the result, or nothing ('')."""
    kernel = compile_kernel(ptx, name)
    for problem, options in itertools.product(problems, schedules(seed, OPTIONS)):
        try:
            o, lse, report = problem.run(kernel, options)
        except RaceError:
            return "race detector"
        except KernelError as error:
            return type(error).__name__
        if problem.row_error(o) > TOLERANCE or problem.lse_error(lse) > LSE_TOLERANCE:
            return "wrong result"
        if report.mma_instructions != problem.mma_instructions():
            return "more work than needed"
    return ""


def whole_problems(config: FlashForwardKernelConfig, seed: int) -> list[Problem]:
    """Two blocks of Q rows; four of K and V, because with two the barrier behind the peeled first
    iteration never runs."""
    return [Problem.make(config, 2 * config.B_r, seed, 4 * config.B_c)]


def general_problems(config: FlashForwardKernelConfig, seed: int) -> list[Problem]:
    """Lengths with a few rows beyond whole blocks, so that every bounded copy and store has rows
    that it must leave, and no keys at all. Causal with fewer queries than keys, which end with a
    block; and with more: blocks of queries that see nothing, one with some that do, and blocks of
    keys with and without a mask."""
    n_queries = 4 * config.B_r + 3
    first_to_see = (2 * config.B_r + 22 + 8 * i for i in range(4))  # in each half of a warp's tiles
    return [
        Problem.make(config, config.B_r + 3, seed, 3 * config.B_c + 5),
        Problem.make(config, config.B_r // 2 + 3, seed, 3 * config.B_c, causal=True),
        Problem.make(config, 3, seed, 0),
        *(Problem.make(config, n_queries, seed, n_queries - n, causal=True) for n in first_to_see),
    ]


def campaign(
    config: FlashForwardKernelConfig,
    mutants: list[Mutant],
    seed: int,
    by_reports: bool = False,
    general: bool = False,
) -> Outcome:
    """`by_reports`: a wrong result is not enough, an error must name the place. `general`: the
    mutants are of the general kernel."""
    name = config.general_kernel_name() if general else config.kernel_name()
    ptx = kernel_ptx(config, general)
    problems = general_problems(config, seed) if general else whole_problems(config, seed)
    if verdict(problems, ptx, name, seed):
        raise AssertionError(f"{name}: the unmutated kernel must pass")
    compile_kernels([(mutant.ptx, name) for mutant in mutants])
    outcome = Outcome(len(mutants), Counter(), 0, [])
    lines = SourceLines(ptx)
    for mutant in mutants:
        by = verdict(problems, mutant.ptx, name, seed)
        place = str(lines.locate(mutant.line))
        if by and not (by_reports and by == "wrong result"):
            outcome.found[by] += 1
        elif any(mutant.name == r.mutant and r.source in place for r in REDUNDANT):
            outcome.redundant += 1
        else:
            outcome.survivors.append(f"{name}: {mutant} at {place}: {by or 'nothing'}")
    return outcome


def full_campaign(family: Family, seed: int) -> Iterable[tuple[str, Outcome]]:
    for config in family.synchronisation():
        mutants = synchronisation(kernel_ptx(config))
        yield f"{config} synchronisation", campaign(config, mutants, seed, by_reports=True)
    for config in family.general:
        ptx = kernel_ptx(config, general=True)
        mutants = synchronisation(ptx)
        outcome = campaign(config, mutants, seed, by_reports=True, general=True)
        yield f"{config} general synchronisation", outcome
        mutants = bounds_and_masks(ptx, count=16)
        yield f"{config} general bounds", campaign(config, mutants, seed, general=True)
    for config in family.arithmetic:
        mutants = arithmetic_and_addressing(kernel_ptx(config), 2 * config.d_head, 100)
        yield f"{config} arithmetic", campaign(config, mutants, seed)


def main() -> int:
    total = Outcome(0, Counter(), 0, [])
    for family in FAMILIES:
        for title, outcome in full_campaign(family, seed=1):
            print(f"{family.name} {title}: {outcome}", flush=True)
            total.planted += outcome.planted
            total.found += outcome.found
            total.redundant += outcome.redundant
            total.survivors += outcome.survivors
    for survivor in total.survivors:
        print(f"SURVIVED {survivor}")
    print("found by: " + ", ".join(f"{by} {n}" for by, n in total.found.most_common()))
    print(total)
    return 1 if total.survivors or not total.planted else 0


if __name__ == "__main__":
    sys.exit(main())
