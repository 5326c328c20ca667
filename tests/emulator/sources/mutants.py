"""The bugs to plant: changes of the headers that a family's kernels include, and a choice of them
that does not depend on anything but their own text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from flash_helpers.codegen.sources import included_headers

from .edits import edits_of
from .header import Edit

SHARED = ("tile", "ptx")  # folders that all families use; each family has its own besides
LEFT_OUT = {"args.h"}  # layouts that the host shares: tests/config/test_cpp_contracts.py
_FUNCTION = re.compile(r"\s*(?:FLASH_DEVICE .*?|(?:static )?constexpr \w+ )(\w+)\(")


@dataclass(frozen=True)
class SourceMutant:
    """One change of one header. `before` and `after` are the lines that differ, without the blanks
    around them; with the file and the function they name the change, wherever it stands."""

    file: str  # below csrc/include/flash
    function: str
    kind: str
    before: str
    after: str
    line: int
    text: str  # of the whole header, changed

    @property
    def key(self) -> str:
        return "\0".join((self.file, self.function, self.kind, self.before, self.after))

    def __str__(self) -> str:
        after = self.after or "nothing"
        return f"{self.file}:{self.line} {self.function}(): {self.kind}: {self.before} -> {after}"


def mutants_of(file: str, source: str) -> list[SourceMutant]:
    lines = source.splitlines()
    return [_mutant(file, source, lines, edit) for edit in edits_of(source)]


def _mutant(file: str, source: str, lines: list[str], edit: Edit) -> SourceMutant:
    text = source[: edit.start] + edit.text + source[edit.end :]
    changed = text.splitlines()
    first = source.count("\n", 0, edit.start)
    behind = source.count("\n", edit.end) - source.endswith("\n")  # lines not touched
    before, after = lines[first : len(lines) - behind], changed[first : len(changed) - behind]
    return SourceMutant(
        file, _function(lines[: first + 1]), edit.kind, _joined(before), _joined(after),
        first + 1, text,
    )  # fmt: skip


def _joined(lines: Iterable[str]) -> str:
    return " ".join(line.strip() for line in lines).strip()


def _function(lines: list[str]) -> str:
    matches = (_FUNCTION.match(line) for line in reversed(lines))
    return next((match[1] for match in matches if match), "")


def headers_of(units: Iterable[str], family: str, include: Path) -> list[str]:
    """Headers that the translation units read, of the family's folder and the shared ones, as seen
    from flash/."""
    root = include / "flash"
    found = {path for unit in units for path in included_headers(unit, include)}
    names = sorted(str(path.relative_to(root)) for path in found)
    folders = (family, *SHARED)
    return [n for n in names if n.split("/")[0] in folders and Path(n).name not in LEFT_OUT]


def chosen(mutants: Iterable[SourceMutant], seed: str, quota: dict[str, int]) -> list[SourceMutant]:
    """Of each kind in each file as many as `quota` says, by a digest: what is planted elsewhere, or
    written into another line, changes nothing here. Of equal ones, the first."""
    by_kind: dict[tuple[str, str], list[SourceMutant]] = {}
    for mutant in {mutant.key: mutant for mutant in reversed(list(mutants))}.values():
        by_kind.setdefault((mutant.file, mutant.kind), []).append(mutant)
    found = []
    for (_, kind), some in by_kind.items():
        found += sorted(some, key=lambda m: _rank(seed, m))[: quota.get(kind, quota[""])]
    return sorted(found, key=lambda mutant: (mutant.file, mutant.line, mutant.key))


def _rank(seed: str, mutant: SourceMutant) -> bytes:
    return hashlib.sha256(f"{seed}\0{mutant.key}".encode()).digest()
