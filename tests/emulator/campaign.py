"""Mutation campaigns: bugs planted in the PTX of real kernels, run under every check there is.

`make mutants` (`python -m tests.emulator.campaign`) plants all of them and fails if one survives.
None is redundant: the first run found a barrier that ordered nothing, which the kernel has lost
since.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.check.tolerance import ROW_FACTOR
from flash_helpers.emulator import LaunchOptions, compile_kernel, schedules
from flash_helpers.kernel_configs import DType, FlashForwardKernelConfig, get_sm80_kernel_configs
from flash_helpers.kernels.contract import KernelConfig, Variant

from .attention import Problem
from .mask_mutations import bounds_and_masks
from .mutations import Mutant, arithmetic_and_addressing, synchronisation
from .planting import WRONG, Outcome, plant, report
from .totals import SM80
from .work import TOO_MUCH

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


def check(problems: Sequence[Problem], ptx: str, name: str, seed: int) -> str:
    """What is wrong with the results, or ''."""
    kernel = compile_kernel(ptx, name)
    for problem, options in itertools.product(problems, schedules(seed, OPTIONS)):
        o, lse, launched = problem.run(kernel, options)
        if problem.row_error(o) > ROW_FACTOR or problem.lse_error(lse) > LSE_TOLERANCE:
            return WRONG
        if problem.needed().wrong(launched):
            return TOO_MUCH
    return ""


def whole_problems(config: KernelConfig, seed: int) -> list[Problem]:
    """Two blocks of Q rows; four of K and V, because with two the barrier behind the peeled first
    iteration never runs."""
    rows, keys = config.blocks()
    return [Problem.make(config, 2 * rows, seed, 4 * keys)]


def general_problems(config: KernelConfig, seed: int) -> list[Problem]:
    """Lengths with a few rows beyond whole blocks, so that every bounded copy and store has rows
    that it must leave, and no keys at all. Causal with fewer queries than keys, which end with a
    block; and with more: blocks of queries that see nothing, one with some that do, and blocks of
    keys with and without a mask."""
    rows, keys = config.blocks()
    n_queries = 4 * rows + 3
    first_to_see = (2 * rows + 22 + 8 * i for i in range(4))  # in each half of a warp's tiles
    return [
        Problem.make(config, rows + 3, seed, 3 * keys + 5),
        Problem.make(config, rows // 2 + 3, seed, 3 * keys, causal=True),
        Problem.make(config, 3, seed, 0),
        *(Problem.make(config, n_queries, seed, n_queries - n, causal=True) for n in first_to_see),
    ]


def campaign(
    config: KernelConfig,
    mutants: list[Mutant],
    seed: int,
    by_reports: bool = False,
    general: bool = False,
) -> Outcome:
    """`by_reports`: a wrong result is not enough, an error must name the place. `general`: the
    mutants are of the general kernel."""
    variant = Variant.ANY if general else Variant.WHOLE
    name, ptx = config.symbol(variant), kernel_ptx(config, variant)
    problems = general_problems(config, seed) if general else whole_problems(config, seed)
    return plant(
        ptx, name, mutants, lambda text: check(problems, text, name, seed), by_reports=by_reports
    )


def full_campaign(family: Family, seed: int) -> Iterable[tuple[str, Outcome]]:
    for config in family.synchronisation():
        mutants = synchronisation(kernel_ptx(config))
        yield f"{config} synchronisation", campaign(config, mutants, seed, by_reports=True)
    for config in family.general:
        ptx = kernel_ptx(config, Variant.ANY)
        mutants = synchronisation(ptx)
        outcome = campaign(config, mutants, seed, by_reports=True, general=True)
        yield f"{config} general synchronisation", outcome
        mutants = bounds_and_masks(ptx, count=16)
        yield f"{config} general bounds", campaign(config, mutants, seed, general=True)
    for config in family.arithmetic:
        mutants = arithmetic_and_addressing(kernel_ptx(config), 2 * config.d_head, 100)
        yield f"{config} arithmetic", campaign(config, mutants, seed)


def main() -> int:
    return report(
        (
            (f"{family.name} {title}", outcome)
            for family in FAMILIES
            for title, outcome in full_campaign(family, seed=1)
        ),
        SM80,
    )


if __name__ == "__main__":
    sys.exit(main())
