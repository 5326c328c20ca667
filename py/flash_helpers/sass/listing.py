"""Reads what `cuobjdump -sass` prints, and finds the main loop. Pure functions over text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_FUNCTION = re.compile(r"^\s*Function : (\S+)$")
_CODE_FOR = re.compile(r"^\s*code for (sm_\w+)$")
# The instruction's own line; the encoding stands behind it and alone on the next one.
_INSTRUCTION = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:\{\s*)?(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*?)\s*;"
)
_BRANCHES = ("BRA", "BRX", "JMP")
_TARGET = re.compile(r"0x([0-9a-f]+)\s*$")
_MATRIX = ("HMMA", "HGMMA", "QGMMA", "IMMA", "IGMMA", "DMMA")


@dataclass(frozen=True)
class Instruction:
    """`opcode` with its modifiers (`LDSM.16.MT88.4`); addresses count from the kernel's start."""

    address: int
    predicate: str  # "@!P0", or ""
    opcode: str
    operands: str

    @property
    def base(self) -> str:
        return self.opcode.partition(".")[0]

    def matches(self, pattern: str) -> bool:
        """Whether the opcode begins with the words of `pattern`: IMAD.MOV for IMAD.MOV.U32."""
        return self.opcode == pattern or self.opcode.startswith(pattern + ".")

    @property
    def target(self) -> int | None:
        """Where a direct branch goes."""
        if self.base not in _BRANCHES:
            return None
        found = _TARGET.search(self.operands)
        return int(found[1], 16) if found else None

    def __str__(self) -> str:
        return " ".join(filter(None, (self.predicate, self.opcode, self.operands)))


@dataclass(frozen=True)
class Listing:
    """One kernel on one architecture."""

    name: str
    architecture: str  # "sm_90a"
    instructions: tuple[Instruction, ...]

    @cached_property
    def loop(self) -> tuple[Instruction, ...]:
        """The backward branch around most matrix instructions, and of those the shortest: one KV
        block. Empty if nothing branches back."""
        best: tuple[Instruction, ...] = ()
        for first, last in self._loops():
            body = tuple(i for i in self.instructions if first <= i.address <= last)
            if not best or _rank(body) > _rank(best):
                best = body
        return best

    def _loops(self) -> Iterator[tuple[int, int]]:
        for instruction in self.instructions:
            target = instruction.target
            # A branch to itself is the trap behind the last instruction.
            if target is not None and target < instruction.address:
                yield target, instruction.address

    def part(self, where: str) -> tuple[Instruction, ...]:
        if where not in ("kernel", "loop"):
            raise ValueError(f"{where!r} is no part of a listing: expected kernel or loop")
        return self.loop if where == "loop" else self.instructions

    def text(self) -> str:
        """Clean: addresses, labels at branch targets, no encodings, and no padding behind the
        trap that ends every kernel."""
        kept = _without_padding(self.instructions)
        targets = sorted({i.target for i in kept if i.target is not None})
        labels = {target: f".L{n}" for n, target in enumerate(targets)}
        marks = {}
        if self.loop:
            marks = {self.loop[0].address: "begins", self.loop[-1].address: "ends"}
        lines = [f"// {self.name} ({self.architecture}), {len(kept)} instructions"]
        for i in kept:
            if i.address in labels:
                lines.append(f"{labels[i.address]}:")
            line = f"  {i.address:05x}  {i.predicate:5} {i.opcode:28} {i.operands}"
            if i.target is not None and i.target in labels:
                line = _TARGET.sub(labels[i.target], line.rstrip())
            if i.address in marks:
                line = f"{line.rstrip():90} // main loop {marks[i.address]}"
            lines.append(line.rstrip())
        return "\n".join(lines) + "\n"


def _rank(body: tuple[Instruction, ...]) -> tuple[int, int]:
    return sum(i.base in _MATRIX for i in body), -len(body)


def _without_padding(instructions: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
    last = len(instructions)
    while last and instructions[last - 1].base == "NOP":
        last -= 1
    return instructions[:last]


def parse_listings(text: str) -> list[Listing]:
    """Every kernel of a `cuobjdump -sass`, in its order, padding removed."""
    found: list[Listing] = []
    architecture, name = "", ""
    instructions: list[Instruction] = []

    def close() -> None:
        if name:
            kept = _without_padding(tuple(instructions))
            found.append(Listing(name, architecture, kept))
        instructions.clear()

    for line in text.splitlines():
        if match := _INSTRUCTION.match(line):
            address, predicate, opcode, operands = match.groups()
            instructions.append(
                Instruction(int(address, 16), (predicate or "").strip(), opcode, operands)
            )
        elif match := _FUNCTION.match(line):
            close()
            name = match[1]
        elif match := _CODE_FOR.match(line):
            close()
            architecture, name = match[1], ""
    close()
    empty = [listing.name for listing in found if not listing.instructions]
    if empty:
        raise ValueError(f"the listing names {empty[0]}, but has none of its instructions")
    return found
