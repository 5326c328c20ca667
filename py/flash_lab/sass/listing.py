"""Reads what `cuobjdump -sass` prints, and finds the main loop; registers and memory as
`-res-usage` prints them. Pure functions over text."""

import re
from dataclasses import dataclass
from functools import cached_property

_FUNCTION = re.compile(r"^\s*Function : (\S+)$")
_CODE_FOR = re.compile(r"^\s*code for (sm_\w+)$")
# The instruction's own line; the encoding stands after it and alone on the next one.
_INSTRUCTION = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:\{\s*)?(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*?)\s*;"
)
_USAGE_OF = re.compile(r"^arch = (sm_\w+)$")
_USED_BY = re.compile(r"^\s*Function (\S+):$")
_VALUES = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")
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
        """One KV block: the innermost loop with matrix instructions, of several the one with most
        of them. (A persistent kernel has a loop over tiles around it.) Without any, the shortest
        loop; empty if nothing branches back."""
        bodies = [
            tuple(i for i in self.instructions if branch.target <= i.address <= branch.address)
            for branch in self.instructions
            # A branch to itself is the trap after the last instruction.
            if branch.target is not None and branch.target < branch.address
        ]
        working = [body for body in bodies if _n_matrix(body)]
        innermost = [x for x in working if not any(_is_inside(other, x) for other in working)]
        return max(innermost or bodies, key=lambda b: (_n_matrix(b), -len(b)), default=())

    def part(self, where: str) -> tuple[Instruction, ...]:
        if where not in ("kernel", "loop"):
            raise ValueError(f"{where!r} is not a part of a listing: expected kernel or loop")
        return self.loop if where == "loop" else self.instructions

    def text(self) -> str:
        """The listing without encodings: addresses, and labels at branch targets."""
        targets = sorted({i.target for i in self.instructions if i.target is not None})
        labels = {target: f".L{n}" for n, target in enumerate(targets)}
        marks = {}
        if self.loop:
            marks = {self.loop[0].address: "begins", self.loop[-1].address: "ends"}
        lines = [f"// {self.name} ({self.architecture}), {len(self.instructions)} instructions"]
        for i in self.instructions:
            if i.address in labels:
                lines.append(f"{labels[i.address]}:")
            line = f"  {i.address:05x}  {i.predicate:5} {i.opcode:28} {i.operands}"
            if i.target is not None and i.target in labels:
                line = _TARGET.sub(labels[i.target], line.rstrip())
            if i.address in marks:
                line = f"{line.rstrip():90} // main loop {marks[i.address]}"
            lines.append(line.rstrip())
        return "\n".join(lines) + "\n"


def _n_matrix(body: tuple[Instruction, ...]) -> int:
    return sum(i.base in _MATRIX for i in body)


def _is_inside(body: tuple[Instruction, ...], other: tuple[Instruction, ...]) -> bool:
    begins, ends = body[0].address, body[-1].address
    inside = other[0].address <= begins and ends <= other[-1].address
    return inside and len(body) < len(other)


def parse_listings(text: str) -> list[Listing]:
    """Every kernel of a `cuobjdump -sass`, in its order, without the padding after the trap that
    ends it."""
    found: list[Listing] = []
    architecture, name = "", ""
    instructions: list[Instruction] = []

    def close() -> None:
        if name:
            while instructions and instructions[-1].base == "NOP":
                instructions.pop()
            found.append(Listing(name, architecture, tuple(instructions)))
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


@dataclass(frozen=True)
class Usage:
    """Per thread, but `shared_bytes`, which is static and per block. A stack in a kernel that calls
    nothing is what it spills."""

    kernel: str
    architecture: str
    registers: int
    stack_bytes: int
    shared_bytes: int
    local_bytes: int


def parse_usage(text: str) -> list[Usage]:
    """Every kernel of the text. ValueError if one lacks its figures."""
    found: list[Usage] = []
    architecture, name = "", ""
    for line in text.splitlines():
        if match := _USAGE_OF.match(line):
            architecture, name = match[1], ""
        elif match := _USED_BY.match(line):
            name = match[1]
        elif name and "REG:" in line:
            values = {key: int(value) for key, value in _VALUES.findall(line)}
            missing = {"REG", "STACK", "SHARED", "LOCAL"} - set(values)
            if missing:
                raise ValueError(f"no {', '.join(sorted(missing))} for {name}: {line.strip()}")
            found.append(
                Usage(
                    name, architecture, values["REG"], values["STACK"], values["SHARED"],
                    values["LOCAL"],
                )
            )  # fmt: skip
            name = ""
    return found
