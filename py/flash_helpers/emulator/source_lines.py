"""From a line of PTX text to the source line it came from, through the `.loc` directives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

_LOC = re.compile(
    r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:,\s*function_name\s+\S+?,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?"
)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.M)
_MAX_INLINE_DEPTH = 16


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
    """Looks source lines up in one PTX text. Made for error reports: nothing is indexed."""

    def __init__(self, ptx: str) -> None:
        self._lines = ptx.splitlines()
        self._files = {int(number): path for number, path in _FILE.findall(ptx)}

    def innermost(self, ptx_line: int) -> str:
        """The line's own place without the calls it was inlined into; "" if unknown."""
        for index in range(min(ptx_line, len(self._lines)) - 1, -1, -1):
            text = self._lines[index]
            if match := _LOC.match(text):
                path, line = self._frame(match[1], match[2])
                return f"{PurePath(path).name}:{line}"
            if ".entry" in text:
                break
        return ""

    def locate(self, ptx_line: int) -> SourceLocation:
        frames: list[tuple[str, int]] = []
        wanted: tuple[str, ...] | None = None  # file, line, column of the caller to find
        for index in range(min(ptx_line, len(self._lines)) - 1, -1, -1):
            text = self._lines[index]
            if ".entry" in text:
                break
            match = _LOC.match(text)
            if match is None or (wanted is not None and match.groups()[:3] != wanted):
                continue
            frames.append(self._frame(match[1], match[2]))
            wanted = match.groups()[3:]
            if wanted[0] is None or len(frames) == _MAX_INLINE_DEPTH:
                return SourceLocation(ptx_line, tuple(frames))
        if wanted is not None:
            frames.append(self._frame(wanted[0], wanted[1]))
        return SourceLocation(ptx_line, tuple(frames))

    def _frame(self, file: str, line: str) -> tuple[str, int]:
        return self._files.get(int(file), f"file {file}"), int(line)
