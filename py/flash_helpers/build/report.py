"""What each kernel of a build needs, and the rule that none spills unless it is allowed to."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ..base import csv_text
from ..base.safe_read import parse_toml, read_regular
from ..compilers.errors import BuildError
from ..compilers.ptxas import KernelUsage, parse_compile_seconds, parse_ptxas
from ..kernels.contract import KernelConfig
from ..kernels.names import parse_symbol
from .cmake import object_of

ALLOWED_SPILLS_FILE = Path(__file__).resolve().parent / "allowed_spills.toml"


@dataclass(frozen=True)
class Row:
    usage: KernelUsage
    dynamic_shared_bytes: int
    unit: str
    unit_seconds: float  # of the whole translation unit, all architectures
    unit_kernels: int

    def cells(self) -> list[str | int | float]:
        return [value(self) for value in _COLUMNS.values()]


_COLUMNS: dict[str, Callable[[Row], str | int | float]] = {
    "kernel": lambda row: row.usage.kernel,
    "arch": lambda row: row.usage.architecture,
    "registers": lambda row: row.usage.registers,
    "shared_bytes": lambda row: row.usage.static_shared_bytes + row.dynamic_shared_bytes,
    "stack_bytes": lambda row: row.usage.stack_bytes,
    "spill_store_bytes": lambda row: row.usage.spill_store_bytes,
    "spill_load_bytes": lambda row: row.usage.spill_load_bytes,
    "barriers": lambda row: row.usage.barriers,
    "ptxas_seconds": lambda row: round(row.usage.ptxas_seconds, 3),
    "unit_seconds": lambda row: row.unit_seconds,
    "unit_kernels": lambda row: row.unit_kernels,
}
HEADINGS = tuple(_COLUMNS)


@dataclass(frozen=True)
class AllowedSpill:
    """Permission for the kernels whose names match, on the architectures that match, up to a size:
    a permitted spill that grows is news as well."""

    pattern: str  # a kernel's name, or a shell pattern
    most_bytes: int  # of stores, and of loads
    reason: str
    architecture: str = "*"

    def __post_init__(self) -> None:
        if not self.pattern.strip("*") or not self.reason.strip():
            raise ValueError("an entry needs a pattern that names kernels, and a reason")
        if type(self.most_bytes) is not int or self.most_bytes < 1:
            raise ValueError(f"{self.pattern}: most_bytes = {self.most_bytes!r} is not a size")

    def names(self, kernel: str) -> bool:
        return fnmatchcase(kernel, self.pattern)

    def permits(self, usage: KernelUsage) -> bool:
        most = max(usage.spill_store_bytes, usage.spill_load_bytes)
        here = fnmatchcase(usage.architecture, self.architecture)
        return here and most <= self.most_bytes and self.names(usage.kernel)


def collect(directory: Path, units: Iterable[str]) -> list[Row]:
    """The rows of a build directory's translation units, sorted by kernel and architecture."""
    rows: list[Row] = []
    for unit in units:
        log = directory / f"{object_of('flash_kernels', unit)}.log"
        try:
            rows += _unit_rows(unit, log.read_text(errors="replace"))
        except FileNotFoundError:
            raise BuildError(f"{log} is missing: delete {directory} and build again") from None
        except ValueError as error:
            raise BuildError(f"{log}: {error}") from error
    return sorted(rows, key=lambda row: (row.usage.kernel, row.usage.architecture))


def _unit_rows(unit: str, text: str) -> list[Row]:
    seconds = parse_compile_seconds(text)
    found = parse_ptxas(text)
    n_kernels = len({usage.kernel for usage in found})
    kernels = [parse_symbol(usage.kernel) for usage in found]
    shared = [config.smem_of(variant) for config, variant in kernels]
    return [Row(*x, unit, seconds, n_kernels) for x in zip(found, shared, strict=True)]


def check_complete(
    rows: Sequence[Row], configs: Iterable[KernelConfig], architectures: Iterable[str]
) -> None:
    """Every kernel was compiled for every architecture: no row means no check for spills."""
    found = {(row.usage.kernel, row.usage.architecture) for row in rows}
    numbers = [name.removesuffix("+PTX") for name in architectures]
    for config in configs:
        names = [config.symbol(variant) for variant in config.built_variants()]
        for name, number in itertools.product(names, numbers):
            if (name, number) not in found:
                raise BuildError(f"the compiler's log does not mention {name} for {number}")


def load_allowed_spills(path: Path = ALLOWED_SPILLS_FILE) -> list[AllowedSpill]:
    """The list, strictly: nothing but [[allow]] tables with the fields of AllowedSpill."""
    try:
        data = parse_toml(read_regular(path).decode())
        if set(data) - {"allow"}:
            raise ValueError(f"unknown {', '.join(sorted(set(data) - {'allow'}))}")
        return [AllowedSpill(**entry) for entry in data.get("allow", [])]
    except (ValueError, TypeError) as error:  # TOMLDecodeError is a ValueError
        raise BuildError(f"{path}: {error}; see the file's head for what is expected") from error


def forbidden_spills(rows: Iterable[Row], allowed: Sequence[AllowedSpill]) -> list[Row]:
    return [
        row
        for row in rows
        if row.usage.spills and not any(entry.permits(row.usage) for entry in allowed)
    ]


def unused_entries(allowed: Iterable[AllowedSpill], kernels: Sequence[str]) -> list[AllowedSpill]:
    """Entries that name none of these kernels: misspelt, or left over."""
    return [entry for entry in allowed if not any(entry.names(kernel) for kernel in kernels)]


def check_spills(rows: Sequence[Row], path: Path = ALLOWED_SPILLS_FILE) -> None:
    found = forbidden_spills(rows, load_allowed_spills(path))
    if not found:
        return
    lines = [
        f"  {row.usage.kernel} ({row.usage.architecture}): {row.usage.registers} registers, "
        f"{row.usage.spill_store_bytes} bytes stored, {row.usage.spill_load_bytes} bytes loaded"
        for row in found
    ]
    raise BuildError(
        f"{len(found)} kernel builds spill more registers than {path} allows:\n" + "\n".join(lines)
    )


def summary(rows: Sequence[Row]) -> str:
    kernels = {row.usage.kernel for row in rows}
    spilling = {row.usage.kernel for row in rows if row.usage.spills}
    most = max((row.usage.registers for row in rows), default=0)
    return f"{len(kernels)} kernels, at most {most} registers, {len(spilling)} with allowed spills"


def render_csv(rows: Iterable[Row]) -> str:
    return csv_text.render(
        (dict(zip(HEADINGS, row.cells(), strict=True)) for row in rows), HEADINGS
    )


def as_table(rows: Iterable[Row]) -> str:
    try:
        from ..base.text_table import text_table
    except ModuleNotFoundError:
        raise BuildError("prettytable is not installed: pip install it, or ask for CSV") from None
    return text_table(HEADINGS, (row.cells() for row in rows))


def latest_build(build_root: Path) -> Path:
    """The build directory whose extension is the newest."""
    extensions = sorted(build_root.glob("*/_C.*.so"), key=lambda path: path.stat().st_mtime)
    if not extensions:
        raise BuildError(f"no finished build below {build_root}: python -m flash_helpers.build")
    return extensions[-1].parent
