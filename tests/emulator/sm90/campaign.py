"""Mutation campaign for Hopper's attention kernels: each synchronisation removed, or weakened.

`make mutants` runs it behind the Ampere family's and fails if a mutant survives that REDUNDANT does
not explain. A wrong result is not enough: an error must name the place.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from flash_helpers.base.paths import csrc_dir
from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.emulator import LaunchOptions, compile_kernel, schedules
from flash_helpers.emulator.door.source_lines import SourceLocation
from flash_helpers.kernel_configs import DType, HopperForwardKernelConfig
from flash_helpers.kernels.sm90_fwd.config import GROUP_ROWS, MaxPolicy

from ..mutations import Mutant
from ..planting import WRONG, Outcome, plant, report
from ..redundant import Redundant
from ..totals import SM90
from ..work import TOO_MUCH
from .attention import HopperProblem, crowded_problems, problems
from .mutations import hopper_synchronisation

OPTIONS = LaunchOptions(workers=1, max_backward_branches=1 << 16)
# One group of warps runs as far ahead of the others as the barriers let it.
EARLY = [replace(OPTIONS, early_loads=True, lane_order=order) for order in ("forward", "reverse")]
# The warps of a group are together, as on a GPU.
MEETING = replace(OPTIONS, lane_order="random", seed=1, warps_meet=True)

RANDOM_SCHEDULES = 300

# Small blocks: nvcc and g++ take a quarter of the time.
LAZY = HopperForwardKernelConfig(
    DType.FP16, 64, 64, 2, 2, 1, MaxPolicy.LAZY, overlap=True, ping_pong=True, o_in_q=False
)
THREE_GROUPS = replace(
    LAZY, dtype=DType.BF16, n_mma_groups=3, max_policy=MaxPolicy.EXACT, o_in_q=True
)
TWO_Q = replace(LAZY, n_q_buffers=2, max_policy=MaxPolicy.OPTIMISTIC, ping_pong=False)
SEPARATE = replace(LAZY, d_head=96, overlap=False)
CONFIGS = (LAZY, THREE_GROUPS, TWO_Q, SEPARATE)
# Nothing but mbarriers holds a group back, and it may be a tile ahead of the others.
AHEAD = replace(LAZY, n_mma_groups=3, n_q_buffers=2, ping_pong=False)


def _takes_turns(config: HopperForwardKernelConfig) -> bool:
    return config.ping_pong


def _skips_few(config: HopperForwardKernelConfig) -> bool:
    """Before a tile's first matmul, not more blocks than there are buffers."""
    rows = (config.n_mma_groups - 1) * GROUP_ROWS
    return -(-rows // config.block_n) <= config.n_buffers


def _stages_in_q(config: HopperForwardKernelConfig) -> bool:
    return config.o_in_q


WAIT, SYNCWARP, FENCE = "mbarrier wait passed", "bar.warp.sync removed", "wgmma.fence removed"
# Blocks that a group lets pass.
_SKIPS = ("skip_scores();", "skip_output();")
_LATE_LANES = """the lanes come together at the named barrier of their next turn, before the phase
    that one of them may not have seen can be followed by another"""
_EARLY_ARRIVAL = """the group reads nothing there, and its turn comes after the others have released
    what the buffer held before: an early arrival still belongs to this block's phase"""

REDUNDANT = (
    Redundant(WAIT, "load_q(schedule, position);", "the first tile: its buffer is empty"),
    Redundant(
        WAIT,
        "if (n_blocks > 0) load_k(",
        """the producer has waited for all groups to release the one Q buffer, and with it all
        blocks of the tile before""",
        lambda config: config.n_q_buffers == 1,
    ),
    Redundant(
        FENCE,
        "Mm::issue_output(smem, v_ring.buffer, p, o, [&] { pass_turn(); });",
        """O and P were touched last before the fence that precedes the scores; ptxas wants one
        before each matmul all the same""",
        lambda config: config.overlap,
    ),
    Redundant(SYNCWARP, "// before the block's memory goes", "nothing follows it"),
    *(Redundant(SYNCWARP, line, _LATE_LANES, _takes_turns) for line in _SKIPS),
    *(Redundant(WAIT, line, _EARLY_ARRIVAL, _takes_turns) for line in _SKIPS),
    *(
        Redundant(
            SYNCWARP,
            f"++i) {line}",
            """no buffer comes round before the tile's first matmul, which brings the lanes
            together""",
            _skips_few,
        )
        for line in _SKIPS
    ),
    Redundant(
        WAIT,
        "      kv.skip_scores();",  # of a tile without keys for this group
        """the V before has landed, so that another group has released the V two blocks before it,
        and before that the K whose buffer this is""",
        lambda config: config.overlap,
    ),
    Redundant(
        WAIT,
        "if (block == q_at) load_q(",
        "all groups have released the tile's first K, and before that the Q of the tile before",
    ),
    Redundant(
        WAIT,
        "load_v(block * kBlockN, kv_head, tile.batch);",
        """the K loaded just before needed the release of a block whose scores come behind the
        output that used this V's buffer""",
        lambda config: not config.overlap,
    ),
    Redundant(
        "bar.sync removed",
        "ptx::bar_sync(kQRead + group, Kv::kThreads);",
        """a matmul group is over for all four warps when it is for one, and each warp has waited
        for the last scores""",
    ),
    Redundant(
        SYNCWARP,
        "End::wait_staging_free(lane);",
        "lane 0 alone waits and releases; the others stage again behind the next Q's barrier",
        _stages_in_q,
    ),
)


def source_texts(place: SourceLocation) -> list[str]:
    """The source lines that an instruction was inlined through, innermost first."""
    found = ((_here(path), number) for path, number in place.frames)
    return [_lines_of(path)[number - 1] for path, number in found if path.exists()]


def _here(path: str) -> Path:
    """PTX comes from a cache, which another copy of the same sources may have filled."""
    _, ours, below = path.rpartition("/csrc/include/")
    return csrc_dir() / "include" / below if ours else Path(path)


@functools.cache
def _lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def check(config: HopperForwardKernelConfig, ptx: str, seed: int, n_random: int) -> str:
    """What is wrong with the results, or ''; a wrong one does not keep a later run from ending in
    an error."""
    kernel = compile_kernel(ptx, config.kernel_name())
    wrong: set[str] = set()
    for problem, options in _runs(config, seed, n_random):
        wrong.add(problem.wrong(*problem.run(kernel, options)).partition(":")[0])
    return next((words for words in (WRONG, TOO_MUCH) if words in wrong), "")


def _runs(
    config: HopperForwardKernelConfig, seed: int, n_random: int
) -> Iterator[tuple[HopperProblem, LaunchOptions]]:
    """Every problem under every schedule, then many random schedules."""
    yield from itertools.product(
        problems(config, seed), (*schedules(seed, OPTIONS), *EARLY, MEETING)
    )
    crowded = crowded_problems(config, seed)
    for number in range(n_random):
        options = replace(OPTIONS, lane_order="random", seed=number, early_loads=number % 4 >= 2)
        yield crowded[number % 2], options


def campaign(
    config: HopperForwardKernelConfig,
    mutants: list[Mutant],
    seed: int,
    n_random: int = RANDOM_SCHEDULES,
) -> Outcome:
    return plant(
        kernel_ptx(config),
        config.kernel_name(),
        mutants,
        lambda ptx: check(config, ptx, seed, n_random),
        sources=source_texts,
        explains=lambda mutant, texts: any(
            item.explains(mutant, texts, config) for item in REDUNDANT
        ),
    )


def main() -> int:
    return report(
        (
            (
                f"sm90 {config} synchronisation",
                campaign(config, hopper_synchronisation(kernel_ptx(config)), seed=1),
            )
            for config in CONFIGS
        ),
        SM90,
    )


if __name__ == "__main__":
    sys.exit(main())
