"""Mutation campaign for the Ampere family's fused backward kernels: each synchronisation removed,
or weakened. `make mutants` runs it behind that of the Hopper family's (sm90/backward_campaign.py),
by the same rules. Those of its two passes are planted with the kernels that serve.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.kernel_configs import DType, Variant
from flash_helpers.kernels.sm80_bwd_fused.config import AmpereFusedBackwardKernelConfig

from .mutations import Mutant, synchronisation
from .planting import Outcome, plant, report
from .redundant import Redundant
from .sm90.backward_campaign import RANDOM_SCHEDULES, Kernel, check
from .sm90.campaign import source_texts
from .sm90.mutations import lost_arrivals, passed_waits
from .totals import SM80_FUSED

NARROW = AmpereFusedBackwardKernelConfig(DType.FP16, 64, 128, 128, 8)
WIDE = AmpereFusedBackwardKernelConfig(DType.FP16, 128, 128, 64, 8)
KERNELS: tuple[Kernel, ...] = (
    (NARROW, Variant.KEYS),
    (WIDE, Variant.KEYS),
    (WIDE, Variant.ROUND),
)
REDUNDANT = (
    Redundant(
        "bar.warp.sync removed",
        "__syncwarp();  // every lane has read the rows",
        "the pair has met since it read V",
    ),
)


def mutants_of(kernel: Kernel) -> list[Mutant]:
    ptx = kernel_ptx(*kernel)
    return [*synchronisation(ptx), *passed_waits(ptx), *lost_arrivals(ptx)]


def campaign(
    kernel: Kernel, mutants: list[Mutant], seed: int, n_random: int = RANDOM_SCHEDULES
) -> Outcome:
    config, variant = kernel
    return plant(
        kernel_ptx(config, variant),
        config.symbol(variant),
        mutants,
        lambda ptx: check(config, variant, ptx, seed, n_random),
        sources=source_texts,
        explains=lambda mutant, texts: any(item.explains(mutant, texts) for item in REDUNDANT),
    )


def _campaigns() -> Iterator[tuple[str, Outcome]]:
    for config, variant in KERNELS:
        title = f"{config.FAMILY} {config} {variant.value} synchronisation"
        kernel = config, variant
        yield title, campaign(kernel, mutants_of(kernel), 1)


if __name__ == "__main__":
    sys.exit(report(_campaigns(), SM80_FUSED))
