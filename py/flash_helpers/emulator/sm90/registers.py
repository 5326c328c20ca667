"""Registers of warpgroup matmuls that are touched too early, found from the program.

Between a wgmma and the wgmma.wait_group for its group its accumulators may not be touched, nor its
A registers written; and after an access a wgmma.fence must come before a wgmma that uses the same
registers (PTX ISA, wgmma.fence), but for accumulators passed from one wgmma of a shape to the next.

Both are followed through the control flow for every path. What no path can break costs nothing. For
each pair of places that some path may break the kernel gets a note at the first and a check at the
second, which ask whether the path taken does: paths that cannot happen are not reported.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from ..translator.ptx_parser import Entry, Instruction, Label, Scope
from .control import branches
from .wgmma_ops import elements, is_matmul

# Instructions whose first operand is not a result.
_NO_RESULT = ("st", "red", "stmatrix", "mbarrier", "cp", "bar", "barrier", "setmaxnreg",
              "bra", "brx", "pmevent")  # fmt: skip
_MAX_AGE = 64
ENTRY = -1  # the start of the kernel, as an index of a place


@dataclass(frozen=True)
class _Place:
    """An instruction that matters here: what it reads and writes of the matmuls' registers."""

    instruction: Instruction
    reads: frozenset[str]
    writes: frozenset[str]


@dataclass
class _Block:
    places: list[_Place] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Pair:
    """Two places that the kernel must tell apart; `first` is None for its start."""

    first: Instruction | None
    second: Instruction
    registers: tuple[str, ...]
    in_flight: bool  # the first is a wgmma; else the second is


# In flight: wgmma -> the youngest group it may be in, 0 while uncommitted. Touched: registers ->
# the places that touched them last since a fence.
_Flight = dict[int, int]
_Touched = dict[str, frozenset[int]]
_State = TypeVar("_State")


class RegisterChecks:
    """The pairs of one kernel, and the calls that the translator puts around its instructions."""

    def __init__(self, entry: Entry) -> None:
        self.pairs = find_pairs(entry)
        self.at_entry: list[str] = []
        self._before: dict[int, list[str]] = {}
        self._after: dict[int, list[str]] = {}
        slots: dict[int, int] = {}
        for pair in self.pairs:
            first, second = pair.first, pair.second
            if id(first) not in slots:
                note = f"wgmma_note(L, {len(slots)});"
                notes = self.at_entry if first is None else self._after.setdefault(id(first), [])
                notes.append(note)
            slot = slots.setdefault(id(first), len(slots))
            check = "wgmma_check_done" if pair.in_flight else "wgmma_check_fenced"
            first_line = 0 if first is None else first.line
            arguments = f'{slot}, {first_line}, "{_few(pair.registers)}", {second.line}'
            self._before.setdefault(id(second), []).append(f"{check}(L, {arguments});")

    def before(self, ins: Instruction) -> list[str]:
        return self._before.get(id(ins), [])

    def after(self, ins: Instruction) -> list[str]:
        return self._after.get(id(ins), [])


def _few(registers: tuple[str, ...]) -> str:
    shown = ", ".join(registers[:3])
    return shown + (f" and {len(registers) - 3} more" if len(registers) > 3 else "")


def find_pairs(entry: Entry) -> list[Pair]:
    matmuls = [ins for ins in _walk(entry.body) if isinstance(ins, Instruction) and is_matmul(ins)]
    if not matmuls:
        return []
    tracked = {name for ins in matmuls for name in _operands(ins)}
    return _Analysis(_blocks(entry.body, tracked)).run()


def _operands(ins: Instruction) -> tuple[str, ...]:
    """Accumulators, and A where it is in registers."""
    a = elements(ins.operands[1]) if ins.operands[1].startswith("{") else ()
    return (*elements(ins.operands[0]), *a)


def _walk(scope: Scope) -> Iterator[Instruction | Label]:
    for statement in scope.statements:
        if isinstance(statement, Scope):
            yield from _walk(statement)
        else:
            yield statement


def _mentioned(operands: Iterable[str], tracked: set[str]) -> frozenset[str]:
    found = set()
    for operand in operands:
        for name in operand.strip("{}[]").replace("+", ",").split(","):
            if name.strip() in tracked:
                found.add(name.strip())
    return frozenset(found)


def _place(ins: Instruction, tracked: set[str]) -> _Place | None:
    if ins.opcode[0] == "wgmma":
        return _Place(ins, frozenset(), frozenset())
    split = 0 if ins.opcode[0] in _NO_RESULT else 1
    reads = _mentioned(ins.operands[split:], tracked)
    writes = _mentioned(ins.operands[:split], tracked)
    return _Place(ins, reads, writes) if reads or writes else None


def _blocks(body: Scope, tracked: set[str]) -> list[_Block]:
    """Basic blocks."""
    blocks, labels = [_Block()], dict[int, int]()
    targets = branches(body)
    leaving: list[tuple[int, int]] = []
    falls_through = True

    def begin() -> None:
        blocks.append(_Block())
        if falls_through:
            blocks[-2].successors.append(len(blocks) - 1)

    for statement in _walk(body):
        if isinstance(statement, Label):
            begin()
            labels[id(statement)] = len(blocks) - 1
            falls_through = True
            continue
        if not falls_through:  # nothing leads here
            begin()
            falls_through = True
        place = _place(statement, tracked)
        if place:
            blocks[-1].places.append(place)
        if statement.opcode[0] in ("bra", "brx", "ret", "exit", "trap"):
            leaving += [(len(blocks) - 1, label) for label in targets.get(id(statement), ())]
            falls_through = bool(statement.guard)
            if falls_through:
                begin()
    for block, label in leaving:
        blocks[block].successors.append(labels[label])
    return blocks


def _fixed_point(
    blocks: list[_Block],
    start: _State,
    transfer: Callable[[int, _State, None], _State],
    join: Callable[[_State, _State], _State],
) -> dict[int, _State]:
    """The state before each block that the start reaches."""
    states = {0: start}
    work = [0]
    while work:
        index = work.pop()
        after = transfer(index, states[index], None)
        for successor in blocks[index].successors:
            known = states.get(successor)
            joined = after if known is None else join(known, after)
            if joined != known:
                states[successor] = joined
                work.append(successor)
    return states


class _Analysis:
    def __init__(self, blocks: list[_Block]) -> None:
        self.blocks = blocks
        self.places = [place for block in blocks for place in block.places]
        self._first = []  # index of each block's first place
        total = 0
        for block in blocks:
            self._first.append(total)
            total += len(block.places)
        self._registers = {
            i: (frozenset(elements(place.instruction.operands[0])),
                frozenset(_operands(place.instruction)))
            for i, place in enumerate(self.places) if is_matmul(place.instruction)
        }  # fmt: skip
        # What matmuls write: reading an A register changes nothing for it.
        accumulators = (accumulators for accumulators, _ in self._registers.values())
        self._accumulators: frozenset[str] = frozenset().union(*accumulators)

    def run(self) -> list[Pair]:
        found: dict[tuple[int, int, bool], set[str]] = {}

        def report(first: int, second: int, registers: Iterable[str], in_flight: bool) -> None:
            found.setdefault((first, second, in_flight), set()).update(registers)

        entry = frozenset({ENTRY})
        names = {name for _, all_names in self._registers.values() for name in all_names}
        untouched = dict.fromkeys(names, entry)
        nothing: _Flight = {}
        flights = _fixed_point(self.blocks, nothing, self._flight, _join_flights)
        touched = _fixed_point(self.blocks, untouched, self._touched, _join_touched)
        for index in flights:
            self._flight(index, flights[index], report)
            self._touched(index, touched[index], report)
        return [
            Pair(
                None if first == ENTRY else self.places[first].instruction,
                self.places[second].instruction,
                tuple(sorted(registers)),
                in_flight,
            )
            for (first, second, in_flight), registers in sorted(found.items())
        ]

    def _flight(self, block: int, state: _Flight, report: Callable[..., None] | None) -> _Flight:
        state = dict(state)
        for at, place in enumerate(self.blocks[block].places, self._first[block]):
            ins = place.instruction
            action = ins.opcode[1] if ins.opcode[0] == "wgmma" else ""
            if action == "commit_group":
                state = {site: min(age + 1, _MAX_AGE) for site, age in state.items()}
            elif action == "wait_group":
                pending = int(ins.operands[0])
                state = {site: age for site, age in state.items() if age <= pending}
            elif report and action != "fence":
                self._check_flight(at, place, state, report)
            if action == "mma_async":
                state[at] = 0
        return state

    def _check_flight(
        self, at: int, place: _Place, state: _Flight, report: Callable[..., None]
    ) -> None:
        """What `place` touches of matmuls in flight."""
        own_accumulators, own = self._registers.get(at, (frozenset(), frozenset()))
        shape = place.instruction.opcode
        for site in state:
            accumulators, used = self._registers[site]
            if at in self._registers:
                other = self.places[site].instruction
                same = accumulators == own_accumulators and other.opcode == shape
                touched = (own - own_accumulators) & accumulators | own_accumulators & (
                    used - accumulators if same else used
                )
            else:
                touched = place.reads & accumulators | place.writes & used
            if touched:
                report(site, at, touched, True)

    def _touched(self, block: int, state: _Touched, report: Callable[..., None] | None) -> _Touched:
        state = dict(state)
        for at, place in enumerate(self.blocks[block].places, self._first[block]):
            ins = place.instruction
            if at in self._registers:
                _, used = self._registers[at]
                by_place: dict[int, set[str]] = {}
                for name in used:
                    for first in state.get(name, ()):
                        by_place.setdefault(first, set()).add(name)
                for first, names in by_place.items():
                    if report:
                        report(first, at, names, False)
            elif ins.opcode[0] == "wgmma":
                if ins.opcode[1] == "fence":
                    state = {}
            else:
                here = frozenset({at})
                state.update(dict.fromkeys(place.writes | place.reads & self._accumulators, here))
        return state


def _join_flights(a: _Flight, b: _Flight) -> _Flight:
    return {site: min(a.get(site, _MAX_AGE), b.get(site, _MAX_AGE)) for site in a.keys() | b.keys()}


def _join_touched(a: _Touched, b: _Touched) -> _Touched:
    joined = dict(a)
    for name, places in b.items():
        known = joined.get(name, places)
        joined[name] = known if known is places else known | places
    return joined
