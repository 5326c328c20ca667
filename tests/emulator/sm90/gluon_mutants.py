"""Mutants of kernels that Triton compiled from Gluon: each synchronisation removed, or weakened.

Triton orders the warps of a partition wherever its analysis of shared memory, or its lowering of an
mbarrier operation, might need it; what it writes need not all be necessary. What is not stands here
with the proof.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flash_helpers.emulator import KernelError, RaceError, compile_kernels
from flash_helpers.emulator.door.source_lines import SourceLines

from ..campaign import Outcome
from ..mutations import Mutant

# Runs the PTX on every problem under every schedule; False where a result is wrong.
Runs = Callable[[str], bool]


@dataclass(frozen=True)
class Redundant:
    mutant: str  # how Mutant.name begins
    line: str  # is in the text of the source line
    proof: str

    def explains(self, mutant: Mutant, source: Sequence[str]) -> bool:
        return mutant.name.startswith(self.mutant) and any(self.line in text for text in source)


BAR, ALL, WARP = "bar.sync removed", "barrier.sync removed", "bar.warp.sync removed"
MATMUL = (
    Redundant(BAR, "mbarrier.init(", "nobody uses the barriers before the partitions start"),
    Redundant(BAR, "mbarrier.wait(full", "each thread waits for the phase itself"),
    Redundant(BAR, "c_tile.store(", "nobody has used the tile before"),
    Redundant(BAR, "tma.store_wait(0)", "the barrier at the partitions' end follows"),
    Redundant(
        ALL,
        "tma.store_wait(0)",
        """the end of the only partitions: nothing follows but the state that tells the others to
        exit, which they read behind the next barrier""",
    ),
    Redundant(ALL, "def gluon_matmul(", "in the arm of a state that does not exist"),
    Redundant(WARP, "mbarrier.expect(", "lane 0, which announces, has waited itself"),
    Redundant(
        WARP,
        "tma.async_copy_global_to_shared(",
        """lane 0 announces and issues both copies; and the phase cannot end before it has arrived,
        whoever issues them""",
    ),
)


def campaign(
    runs: Runs, ptx: str, entry: str, mutants: list[Mutant], redundant: Sequence[Redundant],
    folder: Path | None = None,
) -> Outcome:  # fmt: skip
    """`folder` is where the sources lie, if the PTX has only their names."""
    if by := _verdict(runs, ptx):
        raise AssertionError(f"{entry}: the unmutated kernel must pass, not end in: {by}")
    compile_kernels([(mutant.ptx, entry) for mutant in mutants])
    outcome = Outcome(len(mutants), Counter(), 0, [])
    lines = SourceLines(ptx)
    for mutant in mutants:
        by = _verdict(runs, mutant.ptx)
        frames = lines.locate(mutant.line).frames
        texts = [
            (folder or Path()).joinpath(path).read_text().splitlines()[number - 1]
            for path, number in frames
            if number
        ]
        if by and by != "wrong result":
            outcome.found[by] += 1
        elif any(item.explains(mutant, texts) for item in redundant):
            outcome.redundant += 1
        else:
            outcome.survivors.append(f"{mutant} at {frames}: {by or 'nothing'}; {texts}")
    return outcome


def _verdict(runs: Runs, ptx: str) -> str:
    """What finds the mutant: a race report, another error, the result, or nothing ('')."""
    try:
        return "" if runs(ptx) else "wrong result"
    except RaceError:
        return "race detector"
    except KernelError as error:
        return type(error).__name__
