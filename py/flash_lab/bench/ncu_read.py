"""What ncu measured, from its CSV output or from its binary report.

The CSV reader takes ncu's output as it is: the application's own lines, `==PROF==` lines and the
table may share one stream. A damaged line costs its value, and is reported. The table is that of
`--page details` (a line for each metric) or of `--page raw` (a line for each launch, a column for
each metric, and the units in a line of their own).
"""

import csv
import importlib
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from .ncu_metrics import Quantity

_REQUIRED = ("ID", "Process ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value")
_LAUNCH = ("ID", "Process ID", "Kernel Name")
_HEADER = '"ID",'


class ReadError(ValueError):
    """The output is not what ncu writes; the message says what is wrong with it."""


class _DamagedLineError(ValueError):
    """A line of a table cannot be taken; the message says what is wrong with it."""


@dataclass
class Launch:
    """One profiled launch of a kernel; `values` by ncu's metric names."""

    symbol: str
    values: dict[str, Quantity] = field(default_factory=dict)


@dataclass
class Reading:
    launches: list[Launch]
    problems: list[str]  # damaged lines


def read_csv(text: str) -> Reading:
    """The launches in order. Raises ReadError for a table that lacks a column."""
    launches: dict[tuple[str, str], Launch] = {}
    problems: list[str] = []
    columns: list[str] = []
    units: dict[str, str] = {}  # of the raw page
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_HEADER):
            columns, units = _columns(line), {}
        elif columns and line.startswith('"'):
            is_raw = "Metric Name" not in columns
            if is_raw and not units:
                units = _units(line, columns)
                continue
            try:
                row = _row(line, columns)
                if is_raw:
                    _take_raw(row, units, launches)
                else:
                    _take(row, launches)
            except _DamagedLineError as problem:
                problems.append(f"line {number} of ncu's output {problem}: {line[:100]!r}")
    return Reading(list(launches.values()), problems)


def _columns(line: str) -> list[str]:
    columns = next(csv.reader([line]))
    is_raw = all(name in columns for name in _LAUNCH) and any("__" in name for name in columns)
    missing = [] if is_raw else [name for name in _REQUIRED if name not in columns]
    if missing:
        raise ReadError(
            f"ncu's table has no column {missing[0]!r}: is it a page other than details and raw? "
            f"Its columns are {', '.join(columns)[:300]}"
        )
    return columns


def _row(line: str, columns: list[str]) -> dict[str, str]:
    try:
        cells = next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise _DamagedLineError(f"is malformed ({error})") from None
    if len(cells) != len(columns):
        raise _DamagedLineError(f"has {len(cells)} cells instead of {len(columns)}")
    return dict(zip(columns, cells, strict=True))


def _take(row: dict[str, str], launches: dict[tuple[str, str], Launch]) -> None:
    """Adds the row's value to its launch."""
    launch = launches.setdefault((row["Process ID"], row["ID"]), Launch(row["Kernel Name"]))
    if launch.symbol != row["Kernel Name"]:
        raise _DamagedLineError(f"has the ID of another kernel ({launch.symbol[:60]})")
    if row["Metric Name"] in launch.values:
        raise _DamagedLineError(f"repeats {row['Metric Name']}")
    launch.values[row["Metric Name"]] = Quantity(row["Metric Value"], row["Metric Unit"])


def _units(line: str, columns: list[str]) -> dict[str, str]:
    """The line below the head of the raw page. Raises ReadError."""
    try:
        units = _row(line, columns)
    except _DamagedLineError as problem:
        raise ReadError(f"the line of units {problem}: {line[:100]!r}") from None
    if any(units[name] for name in _LAUNCH):
        raise ReadError(f"there is no line of units below the head of ncu's table: {line[:100]!r}")
    return units


def _take_raw(
    row: dict[str, str], units: dict[str, str], launches: dict[tuple[str, str], Launch]
) -> None:
    """A launch with all its values."""
    key = (row["Process ID"], row["ID"])
    if key in launches:
        raise _DamagedLineError("repeats a launch")
    values = {name: Quantity(row[name], units[name]) for name in row if "__" in name}
    launches[key] = Launch(row["Kernel Name"], values)


def find_report_module(ncu: Path) -> ModuleType | None:
    """NVIDIA's `ncu_report`: of ncu's own installation, so that it knows this version's reports,
    else from PyPI (`pip install ncu-report`). None where neither can be imported."""
    for folder in _module_folders(ncu):
        if (folder / "ncu_report.py").is_file():
            sys.path.insert(0, str(folder))
            try:
                return importlib.import_module("ncu_report")
            except Exception:  # built for another Python, a library is missing, ...
                sys.modules.pop("ncu_report", None)
            finally:
                sys.path.remove(str(folder))
    try:
        return importlib.import_module("ncu_report")
    except Exception:
        return None


def _module_folders(ncu: Path) -> Iterable[Path]:
    """The program is a link or a wrapper script in `bin`, or lies in the installation itself."""
    real = ncu.resolve()
    for parent in list(real.parents)[:4]:
        yield parent / "extras" / "python"
    for root in (real.parent.parent, Path("/opt/nvidia")):
        found = [*root.glob("nsight-compute-*"), *root.glob("nsight-compute/*")]
        found.sort(key=lambda folder: list(map(int, re.findall("[0-9]+", folder.name))))
        yield from (folder / "extras" / "python" for folder in reversed(found))


def read_report(path: Path, module: Any, names: Sequence[str]) -> Reading:
    """`names`: the metrics to take. Raises ReadError where the module cannot read the file."""
    try:
        context = module.load_report(str(path))
        actions = [
            context.range_by_idx(r).action_by_idx(a)
            for r in range(context.num_ranges())
            for a in range(context.range_by_idx(r).num_actions())
        ]
        launches = [_launch_of(action, names) for action in actions]
    except Exception as error:  # the module raises what it likes
        raise ReadError(f"ncu_report cannot read {path.name}: {error}") from error
    return Reading(launches, [])


def _launch_of(action: Any, names: Sequence[str]) -> Launch:
    launch = Launch(str(action.name(action.NameBase_DEMANGLED)))
    for name in names:
        metric = action.metric_by_name(name)
        if metric is None:
            continue
        # as_double() of a metric without a value is 0.0.
        has_value = metric.has_value() if hasattr(metric, "has_value") else True
        value = metric.as_double() if has_value else "n/a"
        launch.values[name] = Quantity(value, str(metric.unit()))
    return launch
