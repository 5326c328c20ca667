"""What LaunchOptions(count=True) counted: pure data, sums of it, and its CSV form."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import astuple, dataclass, fields
from typing import TypeVar

from ...base import csv_text
from .counting import CLASSES

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Totals:
    """What warps did: instructions executed, shared-memory wavefronts, 32-byte sectors of global
    memory. Ideal wavefronts are those of an access without bank conflicts (one for 32 lanes of up
    to 4 bytes, 16 of 8 or 8 of 16); ideal sectors are what the distinct bytes fill."""

    executions: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    sectors: int = 0
    ideal_sectors: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Totals) -> Totals:
        return Totals(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def conflicts(self) -> int:
        """Wavefronts that bank conflicts add."""
        return self.wavefronts - self.ideal_wavefronts


@dataclass(frozen=True)
class InstructionCounts:
    """One PTX instruction and what all its executions came to."""

    ptx_line: int
    opcode: str
    source: str  # "forward.cuh:120", the innermost source line; "" without -lineinfo
    opcode_class: str
    totals: Totals


@dataclass(frozen=True)
class Counts:
    """All instructions of one kernel, in the order of its PTX."""

    kernel: str
    instructions: tuple[InstructionCounts, ...]

    def by(self, key: Callable[[InstructionCounts], Key]) -> dict[Key, Totals]:
        sums: dict[Key, Totals] = {}
        for item in self.instructions:
            sums[key(item)] = sums.get(key(item), Totals()) + item.totals
        return sums

    def by_class(self) -> dict[str, Totals]:
        """Every class in the order of CLASSES, those that did not occur with zeros."""
        return dict.fromkeys(CLASSES, Totals()) | self.by(lambda item: item.opcode_class)

    def by_source(self) -> dict[tuple[str, str], Totals]:
        """By source line and opcode."""
        return self.by(lambda item: (item.source, item.opcode))

    @property
    def total(self) -> Totals:
        return sum(self.by_class().values(), Totals())


_PLACE = ("kernel", "ptx_line", "opcode", "source", "opcode_class")
_NUMBERS = tuple(field.name for field in fields(Totals))
CSV_COLUMNS = (*_PLACE, *_NUMBERS)


def to_csv(counts: Counts) -> str:
    """A row for every instruction."""
    rows = []
    for item in counts.instructions:
        place = (counts.kernel, item.ptx_line, item.opcode, item.source, item.opcode_class)
        rows.append(dict(zip(CSV_COLUMNS, (*place, *astuple(item.totals)), strict=True)))
    return csv_text.render(rows, CSV_COLUMNS)


def from_csv(text: str) -> Counts:
    """What to_csv wrote; ValueError names the first line that is something else."""
    rows = csv_text.cells(text)
    if not rows or tuple(rows[0]) != CSV_COLUMNS:
        raise ValueError(f"these are not counts: line 1 must be {','.join(CSV_COLUMNS)}")
    instructions = []
    for number, row in enumerate(rows[1:], 2):
        try:
            _, line, opcode, source, opcode_class, *numbers = row
            if len(numbers) != len(_NUMBERS) or opcode_class not in CLASSES:
                raise ValueError
            totals = Totals(*(int(item) for item in numbers))
            item = InstructionCounts(int(line), opcode, source, opcode_class, totals)
        except ValueError:
            raise ValueError(
                f"line {number} is not a row of counts: {','.join(row)[:80]}"
            ) from None
        instructions.append(item)
    return Counts(rows[1][0] if len(rows) > 1 else "", tuple(instructions))
