"""Mutation campaign for the Hopper family's backward kernels: each synchronisation removed, or
weakened. `make mutants` runs it behind that of the forward pass (campaign.py), by the same rules.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.emulator import LaunchOptions, compile_kernel, schedules
from flash_helpers.kernel_configs import DType, Variant
from flash_helpers.kernels.backward_config import BackwardKernelConfig
from flash_helpers.kernels.sm90_bwd.config import HopperBackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_cluster.config import ClusterBackwardKernelConfig, SumsOrder
from flash_helpers.kernels.sm90_bwd_fused.config import AddBy, FusedBackwardKernelConfig

from ..mutations import Mutant
from ..planting import WRONG, Outcome, plant, report
from ..redundant import Redundant, planted
from ..totals import SM90_BACKWARD, SM90_FUSED
from ..work import TOO_MUCH
from .backward import BackwardProblem, problems
from .campaign import EARLY, MEETING, OPTIONS, source_texts
from .fused_redundant import FUSED_REDUNDANT, UNSEEN
from .mutations import hopper_synchronisation, orders_of_blocks

RANDOM_SCHEDULES = 150

SMALL = HopperBackwardKernelConfig(DType.FP16, 64, 128, 64, 2, 128, 64, 2)
FUSED = FusedBackwardKernelConfig(DType.FP16, 128, 128, 64, 2, 2, AddBy.COPIES)
SPLIT = HopperBackwardKernelConfig(DType.BF16, 192, 64, 64, 2, 128, 64, 2)
Kernel = tuple[BackwardKernelConfig, Variant]
KERNELS: tuple[Kernel, ...] = (
    (SMALL, Variant.KEYS),
    (SMALL, Variant.QUERIES),
    (replace(SMALL, keys_columns=128), Variant.KEYS),  # sums dV late
    (SPLIT, Variant.KEYS),
)
CLUSTER = ClusterBackwardKernelConfig(DType.FP16, 192, 64, 64, 2, 2, 16, SumsOrder.ANY_ORDER)
CLUSTER_IN_ORDER = replace(CLUSTER, wave_pairs=0, sums_order=SumsOrder.IN_ORDER)
IN_ORDER = replace(FUSED, add_by=AddBy.IN_ORDER)
WIDE = replace(FUSED, keys_columns=80)  # one staging buffer
FUSED_KERNELS: tuple[Kernel, ...] = (
    (IN_ORDER, Variant.KEYS),
    (WIDE, Variant.KEYS),
    (FUSED, Variant.ROUND),
    (CLUSTER, Variant.KEYS),
    (CLUSTER, Variant.ROUND),
    (CLUSTER_IN_ORDER, Variant.KEYS),
)
# Whose schedules are tried, without mutants.
OTHERS: tuple[Kernel, ...] = (
    (replace(FUSED, d_head=64, keys_columns=128, add_by=AddBy.REGISTERS), Variant.KEYS),
    (replace(FUSED, add_by=AddBy.REGISTERS), Variant.KEYS),
    (replace(FUSED, d_head=96), Variant.KEYS),
    (replace(IN_ORDER, d_head=96, keys_columns=80), Variant.DOTS),
    (replace(IN_ORDER, d_head=96, keys_columns=80), Variant.KEYS),
    (FUSED, Variant.KEYS),
    (IN_ORDER, Variant.DOTS),
    (CLUSTER, Variant.DOTS),
    (CLUSTER_IN_ORDER, Variant.DOTS),
    (replace(IN_ORDER, d_head=64, keys_columns=128), Variant.KEYS),
    (replace(FUSED, d_head=96), Variant.ROUND),
)


def _one_group_of_a_row(config: BackwardKernelConfig, variant: Variant) -> bool:
    return isinstance(config, HopperBackwardKernelConfig) and not config.splits_sums(variant)


def _sums_both(config: BackwardKernelConfig, variant: Variant) -> bool:
    return variant is Variant.KEYS and _one_group_of_a_row(config, variant)


def _splits(config: BackwardKernelConfig, variant: Variant) -> bool:
    """Two groups have the same keys."""
    by_pairs = isinstance(config, ClusterBackwardKernelConfig) and variant is Variant.KEYS
    return by_pairs or _hands_on_two(config, variant)


def _hands_on_two(config: BackwardKernelConfig, variant: Variant) -> bool:
    """And weights lie in two stages."""
    return isinstance(config, HopperBackwardKernelConfig) and config.splits_sums(variant)


def _splits_with_two_stages(config: BackwardKernelConfig, variant: Variant) -> bool:
    return _hands_on_two(config, variant) and config.shape(variant)[2] == 2


def _sums_late(config: BackwardKernelConfig, variant: Variant) -> bool:
    """Both sums are issued together."""
    return _sums_both(config, variant) and config.shape(variant)[1] == 128


REDUNDANT = (
    Redundant(
        "bar.sync removed",
        "ptx::bar_sync(kOwnRead + group, kThreads);",
        """a matmul group is over for all four warps when it is for one, and each warp has waited
        for the last sums""",
        _one_group_of_a_row,
    ),
    Redundant(
        "wgmma.fence removed",
        "Mm::issue_products(smem.own2(group), other2, d_s);",
        """nothing touches dP between the fence that precedes the scores and this one; ptxas wants
        one before each matmul all the same""",
    ),
    Redundant(
        "wgmma.commit_group removed",
        "Mm::issue_sum(weights, other2, d_own2);",
        "dK follows at once, closes the group with its own, and is waited for",
        _sums_late,
    ),
    Redundant(
        "mbarrier wait passed",
        "sm90::wait_phase(smem.empty2(ring2.buffer)",
        """the Q loaded just before needed the release of a step that had released its dO before""",
        _sums_both,
    ),
    Redundant(
        "wgmma.fence removed",
        "keys.issue_products(smem.own1(0), smem.other1(ring1.buffer), p);",
        "nothing touches S between the fence that precedes dV and this one",
        _hands_on_two,
    ),
    Redundant(
        "wgmma.fence removed",
        "values.issue_products(smem.own2(0), smem.other2(ring2.buffer), d_s);",
        "nothing touches dP between the fence that precedes dK and this one",
        _splits,
    ),
    Redundant(
        "mbarrier wait passed",
        "sm90::wait_phase(smem.weights_empty(weights_ring.buffer)",
        """the scores just multiplied needed a Q whose stage the other group had released at the end
        of the step in which it had read the weights""",
        _splits_with_two_stages,
    ),
    Redundant(
        "mbarrier wait passed",
        "sm90::wait_phase(smem.own_read(), parity);",
        """dK comes where K was, which the weights' consumer had multiplied for the last time before
        it handed on the last weights""",
        _hands_on_two,
        "Base::store(args.call.softmax_scale",
    ),
    Redundant(
        "mbarrier wait passed",
        "sm90::wait_phase(smem.full1(ring1.buffer), ring1.parity);",
        "the weights come from threads that have waited for the same Q",
        _splits,
    ),
)


def mutants_of(config: BackwardKernelConfig, variant: Variant) -> list[Mutant]:
    ptx = kernel_ptx(config, variant)
    mutants = [*hopper_synchronisation(ptx), *orders_of_blocks(ptx)]
    return planted(ptx, mutants, UNSEEN, source_texts, config, variant)


def check(
    config: BackwardKernelConfig, variant: Variant, ptx: str, seed: int, n_random: int
) -> str:
    """What is wrong with the results, or ''; a wrong one does not keep a later run from ending in
    an error."""
    kernel = compile_kernel(ptx, config.symbol(variant))
    wrong = {problem.wrong(kernel, variant, options)
             for problem, options in _runs(config, seed, n_random)}  # fmt: skip
    return next((words for words in (WRONG, TOO_MUCH) if words in wrong), "")


@functools.cache
def _known(config: BackwardKernelConfig, seed: int) -> list[BackwardProblem]:
    """Kept: what the kernels compute without a fault is asked again and again."""
    return problems(config, seed)


def _runs(
    config: BackwardKernelConfig, seed: int, n_random: int
) -> Iterator[tuple[BackwardProblem, LaunchOptions]]:
    """Every problem under every schedule, then many random schedules."""
    known = _known(config, seed)
    yield from itertools.product(known, (*schedules(seed, OPTIONS), *EARLY, MEETING))
    for number in range(n_random):
        options = replace(OPTIONS, lane_order="random", seed=number, early_loads=number % 4 >= 2)
        yield known[number % 2], options
        if isinstance(config, FusedBackwardKernelConfig):
            yield known[3], options  # its only step is a kind of its own


def campaign(
    config: BackwardKernelConfig,
    variant: Variant,
    mutants: list[Mutant],
    seed: int,
    n_random: int = RANDOM_SCHEDULES,
) -> Outcome:
    return plant(
        kernel_ptx(config, variant),
        config.symbol(variant),
        mutants,
        lambda ptx: check(config, variant, ptx, seed, n_random),
        sources=source_texts,
        explains=lambda mutant, texts: any(
            item.explains(mutant, texts, config, variant) for item in (*REDUNDANT, *FUSED_REDUNDANT)
        ),
    )


def _campaigns(kernels: Sequence[Kernel]) -> Iterator[tuple[str, Outcome]]:
    for config, variant in kernels:
        title = f"{config.FAMILY} {config} {variant.value} synchronisation"
        yield title, campaign(config, variant, mutants_of(config, variant), 1)


def main() -> int:
    return max(
        report(_campaigns(KERNELS), SM90_BACKWARD), report(_campaigns(FUSED_KERNELS), SM90_FUSED)
    )


if __name__ == "__main__":
    sys.exit(main())
