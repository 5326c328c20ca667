"""The records of one launch (csrc/emulator/detector/race.h) as races."""

import re
from collections.abc import Sequence
from dataclasses import replace

from ..door import abi
from ..door.source_lines import SourceLines
from ..translator.emitter import all_variables, symbol_table
from ..translator.ptx_parser import PtxFile
from ..translator.translate import mentioned_variables
from .races import KINDS, Race, RaceAccess

MAX_INSTRUCTION = 100  # characters shown: a wgmma names up to 128 registers


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
            self._access(report.first) if report.first.site else None,
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
