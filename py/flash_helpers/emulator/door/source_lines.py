"""From a line of PTX text to the source line it came from, through the `.loc` directives."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

_LOC = re.compile(
    r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:,\s*function_name\s+\S+?,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?"
)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.M)


@dataclass(frozen=True)
class SourceLocation:
    """Innermost (file, line) first, then the calls it was inlined into."""

    ptx_line: int
    frames: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        shown = [f"{PurePath(path).name}:{line}" for path, line in self.frames]
        if not shown:
            return f"PTX line {self.ptx_line}"
        return ", inlined at ".join(shown) + f" (PTX line {self.ptx_line})"


class SourceLines:
    """Looks source lines up in one PTX text."""

    def __init__(self, ptx: str) -> None:
        self._files = {int(number): path for number, path in _FILE.findall(ptx)}
        # Line and groups of each .loc, in order; None where a kernel begins.
        self._directives = [
            (number, match.groups() if (match := _LOC.match(text)) else None)
            for number, text in enumerate(ptx.splitlines(), 1)
            if ".loc" in text or ".entry" in text
        ]
        self._found: dict[int, SourceLocation] = {}

    def innermost(self, ptx_line: int) -> str:
        """The line's own place without the calls it was inlined into; "" if unknown."""
        frames = self.locate(ptx_line).frames
        return f"{PurePath(frames[0][0]).name}:{frames[0][1]}" if frames else ""

    def locate(self, ptx_line: int) -> SourceLocation:
        if ptx_line not in self._found:
            self._found[ptx_line] = SourceLocation(ptx_line, tuple(self._frames(ptx_line)))
        return self._found[ptx_line]

    def _frames(self, ptx_line: int) -> Iterator[tuple[str, int]]:
        wanted: tuple[Any, ...] | None = None  # file, line, column of the caller to find
        last = bisect_right(self._directives, ptx_line, key=lambda directive: directive[0])
        for _, groups in reversed(self._directives[:last]):
            if groups is None:
                break
            if wanted is not None and groups[:3] != wanted:
                continue
            yield self._frame(groups[0], groups[1])
            wanted = groups[3:]
            if wanted[0] is None:
                return
        if wanted is not None:
            yield self._frame(wanted[0], wanted[1])

    def _frame(self, file: str, line: str) -> tuple[str, int]:
        return self._files.get(int(file), f"file {file}"), int(line)
