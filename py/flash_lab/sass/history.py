"""Registers, spills and instructions of kernels, build after build: JSON lines, one per build."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar, get_origin, get_type_hints

from flash_helpers.base.outputs import append_output
from flash_helpers.base.safe_read import parse_json, read_regular

from .classes import count_matching
from .disassembler import SassError
from .listing import Listing
from .sources import Code

_SCHEMA = 1
Record = TypeVar("Record")


@dataclass(frozen=True)
class Entry:
    """One kernel of one build. `spills`: instructions that store to or load from local memory."""

    kernel: str
    architecture: str
    registers: int
    stack_bytes: int
    instructions: int
    loop: int
    spills: int
    loop_spills: int


@dataclass(frozen=True)
class Build:
    """`commit` as provenance.py writes it; `date` in UTC."""

    commit: str
    date: str
    entries: tuple[Entry, ...]

    def entry(self, kernel: str, architecture: str) -> Entry | None:
        for entry in self.entries:
            if (entry.kernel, entry.architecture) == (kernel, architecture):
                return entry
        return None


def measure(code: Code, listings: Sequence[Listing], commit: str, date: str) -> Build:
    return Build(commit, date, tuple(_entry(code, listing) for listing in listings))


def _entry(code: Code, listing: Listing) -> Entry:
    usage = code.usage.get((listing.name, listing.architecture))
    if usage is None:
        raise SassError(f"the registers of {listing.name} are not known: a listing has none")
    return Entry(
        kernel=listing.name,
        architecture=listing.architecture,
        registers=usage.registers,
        stack_bytes=usage.stack_bytes,
        instructions=len(listing.instructions),
        loop=len(listing.loop),
        spills=count_matching(listing.instructions, "spill"),
        loop_spills=count_matching(listing.loop, "spill"),
    )


def append(path: Path, build: Build) -> None:
    """One line in one write, forced to disk: a reader sees whole builds."""
    line = json.dumps({"schema": _SCHEMA, **asdict(build)}, separators=(",", ":")) + "\n"
    append_output(path, line, durable=True)


def read(path: Path) -> list[Build]:
    """Oldest first. SassError if there is none, ValueError naming the line that is not one."""
    try:
        lines = read_regular(path).splitlines()
    except FileNotFoundError:
        raise SassError(f"{path} does not exist: record a build first") from None
    builds = list(_builds(path, lines))
    if not builds:
        raise SassError(f"{path} holds no build")
    return builds


def _builds(path: Path, lines: Sequence[bytes]) -> Iterator[Build]:
    for number, line in enumerate(lines, start=1):
        try:
            data = parse_json(line)
            if data.pop("schema") != _SCHEMA:
                raise ValueError("another schema")
            entries = tuple(_checked(Entry(**entry)) for entry in data.pop("entries"))
            yield _checked(Build(**data, entries=entries))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path}:{number} is not a recorded build: {error}") from error


def _checked(record: Record) -> Record:
    """Raises ValueError for a field of another type."""
    for name, kind in get_type_hints(type(record)).items():
        value = getattr(record, name)
        if type(value) is not (get_origin(kind) or kind):
            raise ValueError(f"{name} is {value!r}"[:80])
    return record


def regressions(builds: Sequence[Build]) -> list[str]:
    """What the newest build spills that the newest earlier record of the same kernel did not."""
    found = []
    *earlier, newest = builds
    for entry in newest.entries:
        known = (build.entry(entry.kernel, entry.architecture) for build in reversed(earlier))
        before = next((old for old in known if old is not None), None)
        if before is not None and entry.spills > before.spills:
            found.append(
                f"{entry.kernel} ({entry.architecture}) spills more: "
                f"{before.spills} -> {entry.spills} instructions"
            )
    return found
