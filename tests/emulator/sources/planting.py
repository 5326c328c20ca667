"""Plants one bug, and says what found it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from flash_helpers.emulator import EmulatorError, RaceError
from flash_helpers.emulator.errors import EmulatorBuildError

from ..planting import WRONG
from .checks import Check, Stage
from .kernels import Kernel, digest, emulated, planted
from .mutants import SourceMutant
from .results import Results

BROKEN = "does not compile"
_LOC = re.compile(r"\.loc\s+(\d+) (\d+)|inlined_at (\d+) (\d+)")
_FILE = re.compile(r'\.file\s+(\d+) "[^"]*/flash/([^"]+)"')


@dataclass(frozen=True)
class Fate:
    """`found`: by what, '' by nothing. `trail`: kernels that the bug changes, up to the one that
    showed it, each with a digest of its PTX; empty where nvcc emits the same for all."""

    found: str
    trail: tuple[tuple[str, str], ...]

    @property
    def compiles(self) -> bool:
        return self.found != BROKEN


@dataclass
class Ground:
    """Where bugs are planted: a family's stages, the copy of the headers, what is known already."""

    stages: Sequence[Stage]
    include: Path
    results: Results
    _sound: dict[Kernel, str] = field(default_factory=dict)
    _lines: dict[Kernel, set[tuple[str, int]]] = field(default_factory=dict)

    def sound(self, kernel: Kernel) -> str:
        """The digest of its PTX without a bug."""
        if kernel not in self._sound:
            ptx = kernel.ptx()
            self._sound[kernel], self._lines[kernel] = digest(ptx), lines_of(ptx)
        return self._sound[kernel]

    def has(self, kernel: Kernel, mutant: SourceMutant) -> bool:
        """Whether some instruction of the kernel comes from the bug's line."""
        self.sound(kernel)
        return (mutant.file, mutant.line) in self._lines[kernel]

    def check_soundness(self) -> None:
        """Raises AssertionError if a check finds something in a kernel without a bug."""
        for stage in self.stages:
            ptx = _Compiled(self, stage.kernel, self.sound(stage.kernel))
            for check in stage.checks:
                if found := self.results.checked(
                    lambda ptx=ptx, check=check: _run(check, ptx),  # type: ignore[misc]
                    ptx.digest, stage.kernel, check,
                ):  # fmt: skip
                    raise AssertionError(f"{stage.kernel} without a bug: {check.name}: {found}")

    def plant(self, mutant: SourceMutant) -> Fate:
        with planted(self.include, mutant.file, mutant.text):
            return self._look(mutant)

    def _look(self, mutant: SourceMutant) -> Fate:
        compiled: dict[Kernel, _Compiled] = {}
        trail: list[tuple[str, str]] = []
        for stage in self._in_order(mutant):
            kernel = stage.kernel
            if kernel not in compiled:
                compiled[kernel] = self._compile(kernel)
                if compiled[kernel].digest == BROKEN:
                    return Fate(BROKEN, ())
                if compiled[kernel].digest != self.sound(kernel):
                    trail.append((str(kernel), compiled[kernel].digest))
            ptx = compiled[kernel]
            if ptx.digest == self.sound(kernel):
                continue
            for check in stage.checks:
                found = self.results.checked(
                    lambda ptx=ptx, check=check: _run(check, ptx),  # type: ignore[misc]
                    ptx.digest, kernel, check,
                )  # fmt: skip
                if found:
                    return Fate(found, tuple(trail))
        return Fate("", tuple(trail))

    def _in_order(self, mutant: SourceMutant) -> list[Stage]:
        """First the kernels that have the line: fewer are compiled until the bug is found."""
        return sorted(self.stages, key=lambda s: (s.thorough, not self.has(s.kernel, mutant)))

    def _compile(self, kernel: Kernel) -> _Compiled:
        made = _Compiled(self, kernel, "")
        made.digest = self.results.compiled(made.compile, kernel, self.include)
        return made


@dataclass
class _Compiled:
    """A kernel with the bug; compiled, and translated, when it is needed."""

    ground: Ground
    kernel: Kernel
    digest: str
    _launched: object = None

    def compile(self) -> str:
        try:
            return digest(self.kernel.ptx(self.ground.include))
        except RuntimeError as error:
            if "nvcc failed" not in str(error):
                raise
            return BROKEN

    def launched(self) -> object:
        if self._launched is None:
            self._launched = emulated(self.kernel.ptx(self.ground.include), self.kernel.entry)
        return self._launched


def _run(check: Check, compiled: _Compiled) -> str:
    """A race report, another error, wrong results, or nothing ('')."""
    try:
        with redirect_stdout(io.StringIO()):
            return check.run(compiled.launched())
    except AssertionError:
        return WRONG
    except RaceError:
        return "race detector"
    except EmulatorBuildError:
        raise
    except EmulatorError as error:
        return type(error).__name__


def lines_of(ptx: str) -> set[tuple[str, int]]:
    """Files below flash/, and the lines of theirs that instructions come from."""
    files = dict(_FILE.findall(ptx))
    found = set()
    for match in _LOC.finditer(ptx):
        for file, line in ((match[1], match[2]), (match[3], match[4])):
            if file in files:
                found.add((files[file], int(line)))
    return found


def distinct(fates: Iterable[tuple[SourceMutant, Fate]]) -> Iterator[tuple[SourceMutant, Fate]]:
    """Without bugs of which nvcc makes the same kernels as of one before."""
    seen: set[tuple[tuple[str, str], ...]] = set()
    for mutant, fate in fates:
        if not fate.trail or fate.trail not in seen:
            yield mutant, fate
        seen.add(fate.trail)
