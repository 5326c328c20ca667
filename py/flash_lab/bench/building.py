"""A build that runs beside the measuring, in parts that become usable one after the other."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from flash_helpers.base.paths import python_path, repository_root
from flash_helpers.base.safe_read import parse_json, read_regular
from flash_helpers.kernels.sets import KERNELS_VARIABLE

_POLL_S = 0.1
_SHOWN_LINES = 30
_NICENESS = 5  # compilers give way to the process that launches kernels


class NoSourcesError(RuntimeError):
    """There is nothing to build from."""


@dataclass(frozen=True)
class BuiltPart:
    library: str  # for FLASH_ATTENTION_LIBRARY
    kernels: frozenset[str]  # short forms


def build_command(n_parts: int, listed_in: Path) -> list[str]:
    return [sys.executable, "-m", "flash_helpers.build", "--parts", str(n_parts), str(listed_in)]


@dataclass
class Build:
    """Use as a context manager: leaving it ends the build. Its output goes to `log`."""

    kernels: str  # the KERNELS word
    n_parts: int
    log: Path
    process: subprocess.Popen[bytes] | None = None
    _folder: tempfile.TemporaryDirectory[str] | None = None
    _output: IO[bytes] | None = None
    _left: list[BuiltPart] | None = field(default=None)

    def __enter__(self) -> Build:
        root = repository_root()
        if root is None:
            raise NoSourcesError("an installed package cannot be rebuilt: use --no_build")
        self._folder = tempfile.TemporaryDirectory(prefix="flash-build-")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._output = self.log.open("wb")
        environ = {**os.environ, KERNELS_VARIABLE: self.kernels, "PYTHONPATH": python_path()}
        self.process = subprocess.Popen(
            build_command(self.n_parts, self._list), env=environ, stdin=subprocess.DEVNULL,
            stdout=self._output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self.process.pid, _NICENESS)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None and self._folder is not None and self._output is not None
        if self.process.poll() is None:
            self.process.terminate()  # ninja and its compilers end with it
            self.process.wait()
        self._output.close()
        self._folder.cleanup()

    def parts(self) -> Iterator[BuiltPart]:
        """Every part that is complete while the rest still compiles. Ends with the build: what is
        left then is better measured with the whole."""
        assert self.process is not None
        while self.process.poll() is None:
            part = self._next()
            if part is not None:
                yield part
            else:
                time.sleep(_POLL_S)

    def finish(self) -> str:
        """Waits. What went wrong, or an empty string."""
        assert self.process is not None
        code = self.process.wait()
        if code == 0:
            return ""
        lines = self.log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:]
        return "\n".join(
            [*lines, f"the build ended with code {code}; all it said is in {self.log}"]
        )

    @property
    def _list(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name) / "parts.json"

    def _next(self) -> BuiltPart | None:
        if self._left is None:
            if not self._list.is_file():
                return None
            items = parse_json(read_regular(self._list))
            self._left = [BuiltPart(i["library"], frozenset(i["kernels"])) for i in items]
        if self._left and Path(self._left[0].library).is_file():
            return self._left.pop(0)
        return None
