"""The race detector's findings (csrc/emulator/detector/race.h) in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..door import abi
from ..door.source_lines import SourceLines, SourceLocation
from ..sm90.remedies import REMEDIES
from ..translator.emitter import all_variables, symbol_table
from ..translator.ptx_parser import PtxFile
from ..translator.translate import mentioned_variables

KINDS = (  # RaceKind in race.h
    "read-after-write",
    "write-after-read",
    "write-after-write",
    "read of an in-flight cp.async",
    "write to an in-flight cp.async",
    "read of bytes never written",
    "read of a bulk load not waited for",
    "write to a bulk load not waited for",
    "write to a source of wgmma in flight",
    "write to the source of a bulk store in flight",
    "write not fenced for an asynchronous unit",
    "mbarrier used before its initialisation is seen",
    "mbarrier used by a bulk load, without a fence after its initialisation",
    "read of what a bulk store in flight writes",
    "write to what a bulk store in flight writes",
    "write to the source of a bulk load in flight",
)
IN_FLIGHT = KINDS[3:5]
UNWRITTEN = KINDS[5]
MAX_INSTRUCTION = 100  # characters shown: a wgmma names up to 128 registers


@dataclass(frozen=True)
class RaceAccess:
    """One of the two accesses: who, where in the source, and the instruction."""

    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    warp: int
    lane: int
    source: SourceLocation
    instruction: str
    barrier: SourceLocation | None  # the last one that the thread passed
    passed_since: bool  # first access only: it passed that barrier afterwards

    @property
    def place(self) -> object:
        """The same in all iterations of an unrolled loop: the source line and what it was inlined
        into at the outermost, or the PTX line where there is none."""
        frames = self.source.frames
        return (frames[0], frames[-2:]) if frames else self.source.ptx_line

    def __str__(self) -> str:
        who = f"block {self.block}, thread {self.thread} (warp {self.warp}, lane {self.lane})"
        return f"{who}: {self.instruction}\n      at {self.source}"


@dataclass(frozen=True)
class Race:
    """Accesses to the same bytes that nothing orders: one example, and how often the same two
    places in the program met like this."""

    kind: str
    memory: str  # "shared memory" or "global memory"
    name: str  # of the variable or registered range
    first_byte: int
    n_bytes: int
    first: RaceAccess | None  # none for reads of bytes never written
    second: RaceAccess
    count: int

    def __str__(self) -> str:
        lines = [f"{self.kind}, {self._bytes()}, {self.count} time" + "s" * (self.count > 1)]
        if self.first is not None:
            lines.append(f"  1. {self.first}")
        lines.append(f"  {2 if self.first else 1}. {self.second}")
        return "\n  ".join([*lines, f"  {self.remedy()}"])

    def _bytes(self) -> str:
        return f"{self.memory} {self.name}, bytes {self.first_byte} to {self.last_byte}"

    @property
    def last_byte(self) -> int:
        return self.first_byte + self.n_bytes - 1

    def remedy(self) -> str:
        """What would order the two, and what does not."""
        first, second = self.first, self.second
        if first is None:
            return "no thread or copy of the block wrote these bytes before"
        if first.block != second.block:
            return "nothing orders blocks within a launch: use atomics, or two launches"
        if self.kind in REMEDIES:
            return REMEDIES[self.kind]
        same_warp = first.warp == second.warp
        barrier = "bar.warp.sync (__syncwarp)" if same_warp else "bar.sync (__syncthreads)"
        if self.kind in IN_FLIGHT:
            wait = f"missing between the two: cp.async.wait_group by thread {first.thread}"
            if first.passed_since:  # a barrier is there, but orders nothing yet
                return f"{wait}, before the barrier at {first.barrier}"
            return wait if first.thread == second.thread else f"{wait}, then {barrier}"
        missing = f"missing between the two: {barrier}; "
        if first.passed_since:
            return missing + (
                f"thread {first.thread} has since passed the barrier at {first.barrier}, "
                f"which did not hold thread {second.thread} back"
            )
        if second.barrier is None:
            return missing + "no barrier was passed before"
        return missing + f"the last barrier before is at {second.barrier}"


class RaceFormatter:
    """Turns the records of one launch into Race objects."""

    def __init__(
        self,
        ptx: str,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int],
        ranges: Sequence[tuple[int, int, str]],  # address, bytes, name
    ) -> None:
        self._lines = SourceLines(ptx)
        self._text = ptx.splitlines()
        self._grid, self._block = grid, block
        self._ranges = ranges
        self._shared = _shared_variables(PtxFile(ptx), entry)

    def races(self, table: abi.RaceTable) -> tuple[Race, ...]:
        reports = [table.reports[i] for i in range(table.distinct)]
        reports.sort(key=lambda r: (r.second.block, r.second.site, r.first.site))
        by_source: dict[object, Race] = {}  # an unrolled loop is one place
        for race in map(self._race, reports):
            key = (race.kind, race.name, race.first and race.first.place, race.second.place)
            known = by_source.setdefault(key, race)
            if known is not race:
                by_source[key] = replace(known, count=known.count + race.count)
        return tuple(by_source.values())

    def _race(self, report: abi.RaceReport) -> Race:
        kind = KINDS[report.kind]
        return Race(
            kind,
            "global memory" if report.is_global else "shared memory",
            *self._bytes(report),
            report.bytes,
            None if kind == UNWRITTEN else self._access(report.first),
            self._access(report.second),
            report.count,
        )

    def _access(self, party: abi.RaceParty) -> RaceAccess:
        barrier = self._lines.locate(party.barrier_site) if party.barrier_site else None
        return RaceAccess(
            _position(party.block, self._grid),
            _position(party.thread, self._block),
            party.thread // 32,
            party.thread % 32,
            self._lines.locate(party.site),
            self._instruction(party.site),
            barrier,
            bool(party.passed_since),
        )

    def _instruction(self, line: int) -> str:
        text = self._text[line - 1].split(";")[0].strip()
        if text.count("{") > text.count("}"):  # an inline assembly scope on one line
            text = text.lstrip("{ ")
        text = re.sub(r"\s+", " ", text)
        return text if len(text) <= MAX_INSTRUCTION else text[:MAX_INSTRUCTION] + " ..."

    def _bytes(self, report: abi.RaceReport) -> tuple[str, int]:
        """The variable's or range's name, and the first byte counted from its start."""
        ranges = self._ranges if report.is_global else self._shared
        for address, n_bytes, name in ranges:
            if address <= report.address and (not n_bytes or report.address < address + n_bytes):
                return name, report.address - address
        return "", report.address


def _shared_variables(ptx: PtxFile, entry_name: str) -> list[tuple[int, int, str]]:
    """Offset, bytes and plain name; dynamic ones have 0 bytes."""
    entry, variables = ptx.entry(entry_name), mentioned_variables(ptx, entry_name)
    symbols, _, _ = symbol_table(entry, variables)
    return [
        (int(match[1]), variable.n_bytes, _plain_name(variable.name))
        for variable in (*variables.values(), *all_variables(entry.body))
        if (match := re.fullmatch(r"\(kSharedBase \+ (\d+)\)", symbols.get(variable.name, "")))
    ]


def _plain_name(symbol: str) -> str:
    """The variable in a mangled name: _ZZ6reduceE7partial is partial."""
    name, at = symbol, 2 if symbol.startswith("_Z") else len(symbol)
    while at < len(symbol):
        length = re.match(r"\d+", symbol[at:])
        at += length.end() if length else 1
        if length:
            name, at = symbol[at : at + int(length[0])], at + int(length[0])
    return name


def _position(index: int, size: Sequence[int]) -> tuple[int, int, int]:
    return (index % size[0], index // size[0] % size[1], index // size[0] // size[1])
