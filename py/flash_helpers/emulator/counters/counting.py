"""The counting variant of a translated kernel: which instruction is in which basic block, and the
calls into csrc/emulator/counters/traffic.h that the translator adds.

Instructions are numbered in the order of the PTX; a basic block begins after every label, branch
and barrier (the runtime's counters start again at barriers).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..translator.emitter import Emitter
from ..translator.passes import Pass
from ..translator.ptx_parser import Entry, Instruction, Scope, parse_integer
from ..translator.ptx_types import PRED, TYPES, U32

_ENDS_BLOCK = ("bra", "brx", "ret", "exit", "trap", "call", "bar", "barrier")
_UNCOUNTED_SPACES = ("param", "const", "local")
_FLOATS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")
_INTEGER = (
    *("abs", "add", "and", "bfe", "bfi", "clz", "div", "mad", "max", "min", "mul", "neg", "not"),
    *("or", "popc", "rem", "selp", "setp", "shf", "shl", "shr", "sub", "xor"),
)
_CLASS_OF_OPCODE = {
    **dict.fromkeys(_INTEGER, "integer"),
    **dict.fromkeys(("fma", "copysign", "testp"), "FMA"),
    **dict.fromkeys(("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"), "MUFU"),
    **dict.fromkeys(("bra", "brx", "ret", "exit", "call", "trap"), "branch"),
    **dict.fromkeys(("shfl", "vote", "redux", "match"), "shuffle"),
    **dict.fromkeys(("bar", "barrier"), "barrier"),
    **dict.fromkeys(("atom", "red"), "atomic"),
    "mma": "mma",
    "wgmma": "mma",
    "mbarrier": "barrier",
    "ldmatrix": "ldmatrix",
    "cvt": "conversion",
}
CLASSES = (
    *("mma", "ldmatrix", "cp.async", "FMA", "MUFU", "integer", "conversion", "branch"),
    *("shared ld", "shared st", "global ld", "global st", "atomic", "shuffle", "barrier", "other"),
)


def opcode_class(opcode: tuple[str, ...]) -> str:
    """Integer is what the ALU does: comparison, selection, minimum and maximum of floats too. FMA
    is float addition and multiplication; commits and waits of cp.async count as barriers; mov,
    ld.param, cvta and the like are 'other'."""
    name = opcode[0]
    if name in ("ld", "ldu", "st"):
        spaces = {part.split("::")[0] for part in opcode[1:]}
        if spaces & set(_UNCOUNTED_SPACES):
            return "other"
        return f"{'shared' if 'shared' in spaces else 'global'} {name[:2]}"
    if name in ("add", "sub", "mul", "mad", "neg", "abs") and opcode[-1] in _FLOATS:
        return "FMA"
    if name == "cp":
        return "barrier" if {"commit_group", "wait_group", "wait_all"} & set(opcode) else "cp.async"
    if name == "div" and opcode[-1] in _FLOATS:
        return "MUFU"
    return _CLASS_OF_OPCODE.get(name, "other")


@dataclass(frozen=True)
class Planned:
    """An instruction with its basic block, and its number among those that touch memory."""

    instruction: Instruction
    block: int
    access: int | None


@dataclass(frozen=True)
class CountPlan:
    instructions: tuple[Planned, ...]

    @property
    def n_blocks(self) -> int:
        return max((item.block + 1 for item in self.instructions), default=0)

    @property
    def n_accesses(self) -> int:
        return sum(item.access is not None for item in self.instructions)


def make_plan(entry: Entry) -> CountPlan:
    planned: list[Planned] = []
    block, accesses, fresh = -1, 0, True
    for item in _statements(entry.body):
        if item is None:
            fresh = True
            continue
        block += fresh
        counts = _touches_memory(item)
        planned.append(Planned(item, block, accesses if counts else None))
        accesses += counts
        fresh = item.opcode[0] in _ENDS_BLOCK
    return CountPlan(tuple(planned))


def _statements(scope: Scope) -> Iterator[Instruction | None]:
    """Every instruction in order; None for a label."""
    for statement in scope.statements:
        if isinstance(statement, Scope):
            yield from _statements(statement)
        else:
            yield statement if isinstance(statement, Instruction) else None


def _touches_memory(ins: Instruction) -> bool:
    if ins.opcode[0] == "cp":
        return len(ins.operands) > 2 and "bulk" not in ins.opcode
    if ins.opcode[0] not in ("ld", "ldu", "st", "atom", "red", "ldmatrix"):
        return False
    return not set(ins.opcode[1:]) & set(_UNCOUNTED_SPACES)


class CountingCalls(Pass):
    """The calls of one kernel."""

    includes = ("traffic.h",)

    def __init__(self, e: Emitter, entry: Entry) -> None:
        self._emitter = e
        self._next = iter(make_plan(entry).instructions)
        self._block = -1

    def ahead(self, ins: Instruction) -> list[str]:
        e, item = self._emitter, next(self._next)
        assert item.instruction == ins
        lines = []
        if item.block != self._block:
            self._block = item.block
            lines.append(f"count_block(L, {item.block});")
        if item.access is None:
            return lines
        if ins.guard:
            lines.append(f"if ({e.read(ins.guard, PRED)}) {{")
        for address, n_bytes in _accesses(e, ins):
            repeats = "kSerialise" if ins.opcode[0] in ("atom", "red") else "kMerge"
            place = f"L, {item.access}, {item.block}, {address}, {n_bytes}"
            lines.append(f"count_access({place}, Repeats::{repeats});")
        if ins.guard:
            lines.append("}")
        return lines


def _accesses(e: Emitter, ins: Instruction) -> list[tuple[str, str]]:
    """(address, bytes) of what one lane touches; no bytes where it touches nothing."""
    name, operands = ins.opcode[0], ins.operands
    if name == "cp":
        whole = str(parse_integer(operands[2]))
        size = e.read(operands[3], U32) if len(operands) > 3 else whole
        return [(_shared(e, operands[0]), whole), (e.address(operands[1]).expression, size)]
    if name == "ldmatrix":
        lanes = next(8 * n for n in (1, 2, 4) if f"x{n}" in ins.opcode)
        return [(_shared(e, operands[1]), f"L->lane_id < {lanes} ? 16 : 0")]
    operand = operands[0 if name in ("st", "red") else 1]
    count = next((n for n in (2, 4) if f"v{n}" in ins.opcode), 1)
    n_bytes = str(count * TYPES[ins.opcode[-1]].n_bytes)
    if any(part.startswith("shared") for part in ins.opcode):
        return [(_shared(e, operand), n_bytes)]
    return [(e.address(operand).expression, n_bytes)]


def _shared(e: Emitter, operand: str) -> str:
    return f"kSharedWindow | ({e.address(operand, wide=False).expression})"
