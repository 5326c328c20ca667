"""Mutation campaign for the kernels that serve: each synchronisation removed, or weakened.

    python -m tests.emulator.serve.campaign [FAMILY ...]

`make mutants` runs it behind those of the dense kernels, by the rules of the Hopper family's: a
wrong result is not enough, an error must name the place, and what is found by nothing has a proof
in REDUNDANT.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from flash_helpers.base.dtypes import DType
from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.emulator import EmulatedKernel, compile_kernel, schedules
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.sm80_bwd_serve.config import AmpereServeBackwardKernelConfig
from flash_helpers.kernels.sm80_serve.config import AmpereServeKernelConfig
from flash_helpers.kernels.sm80_serve_mla.sets import get_ampere_mla_kernel_configs
from flash_helpers.kernels.sm90_bwd_fused.config import AddBy
from flash_helpers.kernels.sm90_bwd_fused_serve.config import FusedServeBackwardKernelConfig
from flash_helpers.kernels.sm90_serve.config import HopperServeKernelConfig
from flash_helpers.kernels.sm90_serve_mla.config import HopperMlaKernelConfig

from ..mutations import Mutant, synchronisation
from ..planting import WRONG, Outcome, plant, report
from ..redundant import Redundant, planted
from ..sm90.campaign import EARLY, FENCE, MEETING, OPTIONS, SYNCWARP, WAIT, source_texts
from ..sm90.fused_redundant import FUSED_REDUNDANT
from ..sm90.fused_redundant import UNSEEN as FUSED_UNSEEN
from ..sm90.mutations import hopper_synchronisation
from ..totals import SERVE
from ..work import TOO_MUCH
from .latent_redundant import LATENT, WAIT_GROUP

Kernel = tuple[KernelConfig, Variant]
RANDOM_SCHEDULES = {
    "sm80_serve": 20, "sm80_bwd_serve": 20, "sm80_serve_mla": 20, "sm90_serve": 80,
    "sm90_serve_mla": 80, "sm90_bwd_fused_serve": 150,
}  # fmt: skip

# Each shape of a decode, and both of prompts.
_AMPERE = [
    AmpereServeKernelConfig(DType.FP16 if d_head == 64 else DType.BF16, d_head, *shape)
    for d_head, stages in ((64, 4), (128, 3))
    for shape in (
        (64, 64, 4, 2),
        *((rows, 128, 8, stages) for rows in (16, 32, 64)),
        *((rows, 64, 4, 2) for rows in (16, 32)),
        *((rows, 64, 4, 3) for rows in (16, 32) if d_head == 128),
    )
]
_GRADIENTS = [
    AmpereServeBackwardKernelConfig(DType.FP16, 64, 128, 64, 8, 128, 64, 8),
    AmpereServeBackwardKernelConfig(DType.BF16, 128, 64, 32, 4, 64, 64, 4),
]
_HOPPER = HopperServeKernelConfig(DType.FP16, 64, 128, 2, 4, 2)
_WIDE = HopperServeKernelConfig(DType.BF16, 192, 96, 2, 2, 1)  # two buffers, outputs in Q's place
_NARROW = replace(_HOPPER, block_n=64, n_mma_groups=4, narrow_window=True)
_FUSED = FusedServeBackwardKernelConfig(DType.FP16, 128, 128, 64, 2, 2, AddBy.COPIES)
_LATENT = HopperMlaKernelConfig(DType.BF16, 576, 64, 64, 8, 2)
ON_HOPPER = (HopperServeKernelConfig, HopperMlaKernelConfig, FusedServeBackwardKernelConfig)
KERNELS: dict[str, tuple[Kernel, ...]] = {
    "sm80_serve": tuple((config, Variant.SERVE) for config in _AMPERE),
    "sm80_bwd_serve": tuple(itertools.product(_GRADIENTS, (Variant.KEYS, Variant.QUERIES))),
    "sm80_serve_mla": tuple(
        (config, Variant.SERVE)
        for config in get_ampere_mla_kernel_configs()
        if config.dtype is DType.FP16
    ),
    "sm90_serve": tuple(
        (config, Variant.SERVE)
        for config in (
            _HOPPER,
            replace(_HOPPER, pack_gqa=True),
            replace(_HOPPER, paged=True),
            _NARROW,
            _WIDE,
        )
    ),
    "sm90_bwd_fused_serve": ((_FUSED, Variant.KEYS), (_FUSED, Variant.ROUND)),
    "sm90_serve_mla": ((_LATENT, Variant.SERVE),),
}


def _has_room(config: KernelConfig, variant: Variant) -> bool:
    """More buffers than a group can be ahead of the others by blocks."""
    return isinstance(config, HopperServeKernelConfig) and config.n_buffers > 2


def _has_one_q(config: KernelConfig, variant: Variant) -> bool:
    return isinstance(config, HopperServeKernelConfig) and config.n_q_buffers == 1


REDUNDANT = (
    *(
        Redundant(
            mutant,
            "ptx::cp_async_wait_group<0>();  // copies end before the thread block",
            """behind the last tile: every block that was copied was waited for and multiplied, and
            the groups behind it are empty""",
            lambda config, variant: config.FAMILY == "sm80_serve",
        )
        for mutant in WAIT_GROUP
    ),
    Redundant(
        "bar.sync removed",
        "ptx::bar_sync(sm90::kQRead + group, Kv::kThreads);",
        "the group meets at the named barrier of its turn before it multiplies what it has cleared",
    ),
    Redundant(
        SYNCWARP,
        "skip_scores();",
        "the lanes come together at the named barrier of the turn, before lane 0 releases",
    ),
    Redundant(
        SYNCWARP,
        "__syncwarp();  // the staging may be written again",
        "the lanes come together when they wait for the staging to be free, before they write it",
    ),
    Redundant(SYNCWARP, "// before the block's memory goes", "nothing follows it"),
    *(
        Redundant(
            mutant,
            "// before the block's memory goes",
            "where outputs are staged in Q's place, each tile ends with the same wait",
            lambda config, variant: isinstance(config, HopperServeKernelConfig) and config.o_in_q(),
        )
        for mutant in ("cp.async.bulk.wait_group removed", "wait weakened")
    ),
    Redundant(
        SYNCWARP,
        "      End::Base::wait_staging_free(lane);",  # of compute_tile
        "the group meets at its named barrier behind it, before lane 0 releases Q",
    ),
    Redundant(
        SYNCWARP,
        "load_q(next);",
        """lane 0 alone writes and copies; the others wait for the phases themselves, and meet it in
        the shuffle of the next answer""",
    ),
    Redundant(
        FENCE,
        "Mm::issue_output(smem, v_ring.buffer, p, o, [&] { pass_turn(); });",
        "O and P were touched last before the fence that precedes the scores",
    ),
    Redundant(
        WAIT,
        "skip_scores();",
        """the group reads nothing there, and its turn comes after the others have released what the
        buffer held before: they have had the turn of the block before, and K of the one before
        that is released in front of it. So an early arrival still belongs to this block's phase""",
    ),
    Redundant(
        WAIT,
        "for (int i = 0; i < work.n_skipped; ++i) skip_output();",
        """as above: it comes behind the group's turn for the first block that it sees, by when the
        others have released V of the third block before it, and of all in front of that""",
    ),
    Redundant(
        WAIT,
        "skip_output();",
        """as above, but when it is the group's turn, the others may still multiply with V of the
        block before the last""",
        _has_room,
    ),
    Redundant(
        "",
        "if (block == q_at) is_one = load_next_q(next, answered());",
        """never runs with one Q, which is asked for behind this loop. Without that code ptxas
        spills a word at 256""",
        _has_one_q,
    ),
    Redundant(
        WAIT, "bool is_one = load_next_q(next, blockIdx.x);", "the first tile: its buffer is empty"
    ),
    Redundant(
        WAIT,
        "if (block == q_at) is_one = load_next_q(next, answered());",
        "all groups have released the tile's first K, and before that the Q of the tile before",
    ),
    Redundant(
        WAIT,
        "      wait_cleared();",  # of load_v
        """the V that was in the buffer has been released, so that it and all before it had been
        announced by the warp that clears, which had read its words by then""",
    ),
    Redundant(
        WAIT,
        "    wait_cleared();",  # of announce_end
        """at most two blocks of a tile are cleared. So the one whose place this is was the first of
        the tile before or earlier where there are more than two places; else of the last tile, or
        earlier, but then that tile's Q is known to be free, as the one before's is with two Q: all
        groups have released it behind all of the tile's blocks but the last""",
        lambda config, variant: _has_room(config, variant) or _has_one_q(config, variant),
    ),
)

PROOFS = (*REDUNDANT, *LATENT, *FUSED_REDUNDANT)

_HELD_BACK = """only a thread that is held back while other warps compute a whole block would go
    wrong: a group whose rows see nothing of the last five blocks of a tile releases the first of
    them; the other group, and the copy engine, can then go on until its buffer has been filled
    again, and a thread that has not seen it full waits for ever"""
# Needed, and not planted.
UNSEEN = (
    Redundant(SYNCWARP, "skip_output();", _HELD_BACK),
    Redundant(WAIT, "if (tile.end > tile.begin) load_k(tile, tile.end - 1);", _HELD_BACK),
)


def mutants_of(config: KernelConfig, variant: Variant) -> list[Mutant]:
    ptx = kernel_ptx(config, variant)
    if not isinstance(config, ON_HOPPER):
        return synchronisation(ptx)
    of_all = [*hopper_synchronisation(ptx), *synchronisation(ptx)]
    each = {mutant.ptx: mutant for mutant in reversed(of_all)}  # both remove barriers
    mutants = list(reversed(each.values()))
    return planted(ptx, mutants, (*UNSEEN, *FUSED_UNSEEN), source_texts, config, variant)


def check(config: KernelConfig, variant: Variant, ptx: str, seed: int, n_random: int) -> str:
    """What is wrong with the results, or ''; a wrong one does not keep a later run from ending in
    an error."""
    kernel = compile_kernel(ptx, config.symbol(variant))
    wrong = {found for found in _runs(config, variant, kernel, seed, n_random) if found}
    return next((words for words in (WRONG, TOO_MUCH) if words in wrong), "")


def _runs(
    config: KernelConfig, variant: Variant, kernel: EmulatedKernel, seed: int, n_random: int
) -> Iterator[str]:
    """Every launch under every schedule, then many random schedules."""
    from .problems import launches  # torch, for which collecting tests does not wait

    known = launches(config, variant)
    early = [*EARLY, MEETING] if isinstance(config, ON_HOPPER) else []
    for launch, options in itertools.product(known, (*schedules(seed, OPTIONS), *early)):
        yield launch.wrong(kernel, options)
    for number in range(n_random):
        options = replace(OPTIONS, lane_order="random", seed=number, early_loads=number % 4 >= 2)
        yield known[number % len(known)].wrong(kernel, options)


def campaign(
    config: KernelConfig,
    variant: Variant,
    mutants: Sequence[Mutant],
    seed: int,
    n_random: int | None = None,
) -> Outcome:
    n_random = RANDOM_SCHEDULES[config.FAMILY] if n_random is None else n_random
    return plant(
        kernel_ptx(config, variant),
        config.symbol(variant),
        mutants,
        lambda ptx: check(config, variant, ptx, seed, n_random),
        sources=source_texts,
        explains=lambda mutant, texts: any(
            item.explains(mutant, texts, config, variant) for item in PROOFS
        ),
    )


def _campaigns(family: str) -> Iterator[tuple[str, Outcome]]:
    for config, variant in KERNELS[family]:
        title = f"{config.FAMILY} {config} {variant.value} synchronisation"
        yield title, campaign(config, variant, mutants_of(config, variant), 1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.emulator.serve.campaign", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(KERNELS))
    families = parser.parse_args(arguments).families or list(KERNELS)
    if unknown := set(families) - set(KERNELS):
        parser.error(f"no family {', '.join(sorted(unknown))}: there are {', '.join(KERNELS)}")
    return max(report(_campaigns(family), SERVE.get(family)) for family in families)


if __name__ == "__main__":
    sys.exit(main())
