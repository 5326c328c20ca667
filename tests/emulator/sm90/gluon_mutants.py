"""Mutants of kernels that Triton compiled from Gluon: each synchronisation removed, or weakened.

Triton orders the warps of a partition wherever its analysis of shared memory, or its lowering of an
mbarrier operation, might need it; what it writes need not all be necessary. What is not stands here
with the proof.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flash_attention.triton_kit.versions import installed_version, minor_of
from flash_helpers.emulator import LaunchOptions, schedules

from ..mutations import Mutant
from ..planting import WRONG, Outcome, plant, report
from ..totals import GLUON, GLUON_TRITON, Total
from .gluon_attention import FEW, GluonKernel, GluonProblem, Lengths
from .mutations import hopper_synchronisation

OPTIONS = LaunchOptions(workers=1, max_backward_branches=1 << 16)
RANDOM_SCHEDULES = 10
CAMPAIGN = (FEW[0], FEW[4])

# Runs the PTX on every problem under every schedule; False where a result is wrong.
Runs = Callable[[str], bool]
_REACH = 24  # lines


@dataclass(frozen=True)
class Redundant:
    mutant: str  # how Mutant.name begins
    line: str  # a regular expression, found in the text of the source line
    proof: str
    ptx: str = ""  # a regular expression, found in the PTX from the mutated line on

    def explains(self, mutant: Mutant, source: Sequence[str], ptx: Sequence[str]) -> bool:
        behind = "\n".join(ptx[mutant.line - 1 :][:_REACH])
        return (
            mutant.name.startswith(self.mutant)
            and any(re.search(self.line, text) for text in source)
            and bool(re.search(self.ptx, behind))
        )


BAR, ALL, WARP = "bar.sync removed", "barrier.sync removed", "bar.warp.sync removed"
WAIT = "mbarrier wait passed"
_COMMON = (
    Redundant(BAR, r"mbarrier\.init\(", "nobody uses the barriers before the partitions start"),
    Redundant(BAR, r"mbarrier\.wait\(", "each thread waits for the phase itself"),
    Redundant(BAR, r"^    tma\.store_wait\(0\)$", "the barrier at the partition's end follows"),
    Redundant(
        ALL, r"^def attention\($|^def gluon_matmul\(", "in the arm of a state that does not exist"
    ),
    Redundant(WARP, r"mbarrier\.expect\(", "lane 0, which announces, has waited itself"),
    Redundant(
        WARP,
        r"async_load\(",
        """lane 0 announces and issues the copies; and the phase cannot end before it has arrived,
        whoever issues them""",
    ),
)
MATMUL = (
    *_COMMON,
    Redundant(BAR, r"c_tile\.store\(", "nobody has used the tile before"),
    Redundant(
        ALL,
        r"tma\.store_wait\(0\)",
        """the end of the only partitions: nothing follows but the state that tells the others to
        exit, which they read behind the next barrier""",
    ),
)
ATTENTION = (
    *_COMMON,
    Redundant(
        BAR,
        r"mbarrier\.arrive\(",
        """a matmul group is over for all four warps of a partition when it is for one, and thread
        0, which arrives, has waited for it""",
        r"\A\s*bar\.sync\s+\d+, 128;",
    ),
    Redundant(
        WAIT,
        r"\bk\.wait\(",
        """the group's turn comes behind that of the group before, which has waited for the same
        block of K; the first group's own wait is needed""",
        r"bar\.sync 1[01], 256",
    ),
    Redundant(
        BAR,
        r"s = warpgroup_mma\(tile\.q, k, gl\.zeros\(\[M, N\], .*, layout\), use_acc=False\)$",
        """the same K again: each thread has waited for it, and nobody writes it until the group
        has given it back behind this""",
    ),
    Redundant(
        "wgmma.fence removed",
        r"s = warpgroup_mma\(",
        """the scores go to registers that nothing has touched before (use_acc=False), Q and K are
        in shared memory; O and P have a fence of their own""",
    ),
)


def campaign(
    runs: Runs, ptx: str, entry: str, mutants: list[Mutant], redundant: Sequence[Redundant],
    folder: Path | None = None,
) -> Outcome:  # fmt: skip
    """`folder` is where the sources lie, if the PTX has only their names."""
    ptx_lines = ptx.splitlines()
    return plant(
        ptx,
        entry,
        mutants,
        lambda text: "" if runs(text) else WRONG,
        sources=lambda place: source_texts(ptx, place.frames, folder),
        explains=lambda mutant, texts: any(
            item.explains(mutant, texts, ptx_lines) for item in redundant
        ),
    )


def source_texts(ptx: str, frames: Sequence[tuple[str, int]], folder: Path | None) -> list[str]:
    """What may stand in the source lines. Triton names the file of the kernel for lines of the
    function that a partition runs, whatever file that is in: so each line is looked up in all."""
    texts = []
    for file in re.findall(r'^\s*\.file\s+\d+ "([^"]*)"', ptx, re.M):
        path = (folder or Path()) / file
        if path.exists():
            source = path.read_text().splitlines()
            texts += [source[number - 1] for _, number in frames if 0 < number <= len(source)]
    return texts


def orders(seed: int, n_random: int) -> Iterator[LaunchOptions]:
    """Every schedule, with late and with early loads; then more random ones."""
    for options in schedules(seed, OPTIONS):
        yield options
        yield replace(options, early_loads=True)
    for number in range(n_random):
        early = number % 2 == 1
        yield replace(OPTIONS, lane_order="random", seed=seed + 1 + number, early_loads=early)


def attention_campaign(
    kernel: GluonKernel, mutants: list[Mutant], seed: int, n_random: int = RANDOM_SCHEDULES
) -> Outcome:
    # One block takes several tiles, of equal and of different numbers of keys' blocks.
    lengths = (
        Lengths(300, 300, blocks=1),
        Lengths(200, 260, heads=2, kv_heads=1, blocks=1),
        Lengths(128, 64, blocks=1),
        # Maxima that hardly grow: no score is multiplied twice.
        Lengths(128, 448, blocks=1, growth=1.0),
    )
    problems = [GluonProblem(kernel, item, seed) for item in lengths]

    def runs(ptx: str) -> bool:
        return all(
            problem.is_right(problem.run(options, ptx)[0])
            for problem in problems
            for options in orders(seed, n_random)
        )

    compiled = kernel.compiled()
    return campaign(runs, compiled.ptx, compiled.name, mutants, ATTENTION)


def recorded() -> Total | None:
    """None: of another Triton's code."""
    return GLUON if minor_of(installed_version() or "") == GLUON_TRITON else None


def main() -> int:
    return report(
        (
            (
                f"gluon {kernel} synchronisation",
                attention_campaign(kernel, hopper_synchronisation(kernel.compiled().ptx), seed=1),
            )
            for kernel in CAMPAIGN
        ),
        recorded(),
    )


if __name__ == "__main__":
    sys.exit(main())
