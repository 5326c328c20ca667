"""Kernels compiled from headers with a bug: a copy of the headers, and a cache of its own for what
is compiled once and never again."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flash_helpers.base.cache import cache_dir
from flash_helpers.base.paths import csrc_dir
from flash_helpers.build.kernel_ptx import flags_for, kernel_ptx, source_ptx
from flash_helpers.codegen import render_kernel
from flash_helpers.emulator import EmulatedKernel, LaunchOptions, LaunchReport, compile_kernel
from flash_helpers.emulator.door.compile import runtime
from flash_helpers.kernels.contract import KernelConfig, Variant

# Jumps back per thread: what is right needs a few hundred in the problems of checks.py.
MAX_BACKWARD_BRANCHES = 1 << 12
# What says where in the source an instruction comes from, and nothing else.
_PLACES = re.compile(
    r"^[ \t]*(?:\.loc|\.file|//).*\n|^[ \t]*\.section\s+\.debug_\w+\s*\{[^}]*\}\s*$", re.M
)
VARIABLE = "FLASH_ATTENTION_CACHE_DIR"


@dataclass(frozen=True)
class Kernel:
    """One kernel of a configuration."""

    config: KernelConfig
    variant: Variant

    @classmethod
    def of(cls, config: KernelConfig, variant: Variant | None = None) -> Kernel:
        return cls(config, variant or config.first_variant())

    @property
    def entry(self) -> str:
        return self.config.symbol(self.variant)

    @property
    def unit(self) -> str:
        return render_kernel(self.config, self.variant)

    def ptx(self, include: Path | None = None) -> str:
        """Raises RuntimeError, with nvcc's message, if it does not compile."""
        if include is None:
            return kernel_ptx(self.config, self.variant)
        return source_ptx(self.unit, self.entry, self.config.PTX_ARCHITECTURE, include)

    def flags(self) -> tuple[str, ...]:
        return flags_for(self.config.PTX_ARCHITECTURE)

    def __str__(self) -> str:
        return f"{self.config} {self.variant.value}"


def digest(ptx: str) -> str:
    """Equal for kernels that do the same, wherever in a header their instructions come from."""
    return hashlib.sha256(_PLACES.sub("", ptx).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Limited:
    """A kernel whose loops end, and which runs in one OS thread."""

    kernel: EmulatedKernel

    def launch(
        self, *arguments: Any, options: LaunchOptions | None = None, **named: Any
    ) -> LaunchReport:
        limited = replace(
            options or LaunchOptions(), workers=1, max_backward_branches=MAX_BACKWARD_BRANCHES
        )
        return self.kernel.launch(*arguments, options=limited, **named)


def emulated(ptx: str, entry: str) -> Any:
    """To be launched in an EmulatedKernel's place."""
    return Limited(compile_kernel(ptx, entry))


@contextmanager
def scratch(parent: str | None = None) -> Iterator[Path]:
    """A copy of the headers, changed at will. What is compiled meanwhile goes into a cache that
    ends with it: a thousand kernels of which none is run again."""
    library = runtime().library_path
    before = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory(prefix="flash-sources-", dir=parent) as folder:
        include = Path(folder) / "include"
        shutil.copytree(csrc_dir() / "include", include)
        os.environ[VARIABLE] = str(Path(folder) / "cache")
        try:
            shutil.copy2(library, cache_dir("emulator") / library.name)
            yield include
        finally:
            if before is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = before


@contextmanager
def planted(include: Path, file: str, text: str) -> Iterator[None]:
    """A header of the copy with another text."""
    path = include / "flash" / file
    original = path.read_text()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(original)
