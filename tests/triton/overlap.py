"""Whether the exponentials of one block run beside the matrix product of the block before: read
from the order of the machine code, since ptxas moves them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flash_lab.sass.disassembler import cuobjdump
from flash_lab.sass.listing import Instruction, parse_listings


@dataclass(frozen=True)
class Overlap:
    """One pipelined block in the code of one group: the exponentials of a thread between the wait
    for the scores (one product still runs) and the wait for the output, and those behind it, up to
    the next product. `address` is that of the first wait."""

    address: int
    beside: int
    behind: int

    @property
    def share(self) -> float:
        """1: all of them run beside the product."""
        return self.beside / max(1, self.beside + self.behind)


def listing_of(cubin: bytes) -> tuple[Instruction, ...]:
    """The machine code of the one kernel in `cubin`. Raises SassError without cuobjdump."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        (kernel,) = parse_listings(cuobjdump("-sass", file=path))
    return kernel.instructions


def overlaps(instructions: Sequence[Instruction]) -> list[Overlap]:
    """Every place where a kernel waits for all products but one."""
    found = []
    for i, instruction in enumerate(instructions):
        if _waits_for(instruction) != 1:
            continue
        counts = [0, 0]
        part = 0
        for later in instructions[i + 1 :]:
            if _waits_for(later) == 0:
                part += 1
            # The masked loop's end, or what comes when the maximum must be taken after all.
            if part > 1 or later.base == "HGMMA" or _waits_for(later) == 1:
                break
            counts[part] += later.opcode.startswith("MUFU.EX2")
        found.append(Overlap(instruction.address, *counts))
    return found


def _waits_for(instruction: Instruction) -> int | None:
    """How many products may still run behind this wait; None if it is none."""
    if not instruction.opcode.startswith("WARPGROUP.DEPBAR"):
        return None
    return int(instruction.operands.split(",")[-1].strip().rstrip(";").split()[0], 0)
