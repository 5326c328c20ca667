"""The tuning table: which kernel was fastest where, as schema-checked JSON.

{"schema": 1, "entries": [{"gpu": "NVIDIA H200", "compute_capability": "9.0", "dtype": "FP16",
  "d_head": 128, "causal": false, "seq_min": 1, "seq_max": 724, "kernels": ["(FP16, ..."],
  "evidence": {...}}]}

`kernels` is ranked: the first that fits a problem is taken. `seq_max` null has no end. `evidence`
says what was measured, and is for people, but for `measured_at`, the length: it tells which of a
configuration's two kernels was ranked.
"""

import itertools
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from flash_helpers.base.atomic_file import write_atomically
from flash_helpers.base.cache import exclusive
from flash_helpers.base.dtypes import DType
from flash_helpers.base.plain_file import refuse_special
from flash_helpers.base.safe_read import parse_json, read_regular
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.names import parse_kernel_name_into_config
from flash_helpers.kernels.registry import violations

SCHEMA = 1
_KINDS: dict[str, tuple[type, ...]] = {
    "gpu": (str,), "compute_capability": (str,), "dtype": (str,), "d_head": (int,),
    "causal": (bool,), "seq_min": (int,), "seq_max": (int, type(None)), "kernels": (list,),
    "evidence": (dict,),
}  # fmt: skip


class TuningTableError(ValueError):
    """The table is not one; the message names the place."""


@dataclass(frozen=True)
class Entry:
    gpu: str
    compute_capability: str
    dtype: str
    d_head: int
    causal: bool
    seq_min: int
    seq_max: int | None
    kernels: tuple[str, ...]
    evidence: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def measured_at(self) -> int | None:
        """The length of the sequences with which the kernels were ranked, if the entry says it."""
        length = self.evidence.get("measured_at")
        return length if type(length) is int and length > 0 else None

    @cached_property
    def configs(self) -> tuple[KernelConfig, ...]:
        """Read once: a table has hundreds of names, and each choice of a kernel asks them all."""
        return tuple(map(parse_kernel_name_into_config, self.kernels))

    @property
    def family(self) -> str:
        """Of all its kernels (checked): a new measurement of one family keeps those of others."""
        return self.configs[0].FAMILY

    def covers(self, seq_len: int) -> bool:
        return self.seq_min <= seq_len and (self.seq_max is None or seq_len <= self.seq_max)

    def subject(self) -> tuple[object, ...]:
        """What a new measurement of the same thing replaces."""
        return self.gpu, self.dtype, self.d_head, self.causal, self.family


def read_table(path: Path) -> list[Entry]:
    """Raises TuningTableError, and OSError where there is no file to read."""
    return parse_table(read_regular(path), str(path))


def parse_table(text: str | bytes, where: str) -> list[Entry]:
    """Raises TuningTableError, and nothing else, for whatever is not a table."""
    try:
        data = parse_json(text)
    except ValueError as error:
        raise TuningTableError(f"{where} is not JSON: {error}") from None
    if not isinstance(data, dict) or set(data) != {"schema", "entries"}:
        raise TuningTableError(f"{where} must be an object with `schema` and `entries` alone")
    if type(data["schema"]) is not int or data["schema"] != SCHEMA:
        raise TuningTableError(f"{where} has schema {data['schema']!r}: expected {SCHEMA}")
    if not isinstance(data["entries"], list):
        raise TuningTableError(f"{where}: `entries` must be a list")
    entries = [_entry(item, f"{where}, entry {i}") for i, item in enumerate(data["entries"])]
    _check_ranges(entries, where)
    return entries


def _entry(item: object, where: str) -> Entry:
    if not isinstance(item, dict):
        raise TuningTableError(f"{where} must be an object")
    names = {f.name for f in fields(Entry)}
    wrong = sorted(names ^ set(item))
    if wrong:
        kind = "unknown" if wrong[0] in item else "missing"
        raise TuningTableError(f"{where}: field {wrong[0]!r} is {kind}")
    for name, kinds in _KINDS.items():
        if type(item[name]) not in kinds:
            raise TuningTableError(f"{where}: {name} must be {_or(kinds)}, got {item[name]!r}")
    if not item["kernels"]:
        raise TuningTableError(f"{where}: kernels is empty")
    if item["seq_min"] < 1 or (item["seq_max"] or item["seq_min"]) < item["seq_min"]:
        raise TuningTableError(f"{where}: {item['seq_min']}..{item['seq_max']} is no range")
    for kernel in item["kernels"]:
        _check_kernel(kernel, item, where)
    entry = Entry(**{**item, "kernels": tuple(item["kernels"])})
    families = sorted({config.FAMILY for config in entry.configs})
    if len(families) > 1:
        raise TuningTableError(f"{where}: kernels of {' and '.join(families)}: one family an entry")
    return entry


def _check_kernel(kernel: object, item: dict[str, Any], where: str) -> None:
    if not isinstance(kernel, str):
        raise TuningTableError(f"{where}: a kernel must be a string, got {kernel!r}")
    try:
        config = parse_kernel_name_into_config(kernel)
    except ValueError as error:
        raise TuningTableError(f"{where}: {error}") from None
    if reasons := violations(config):
        raise TuningTableError(f"{where}: {kernel} cannot be built: {' '.join(reasons)}")
    if item["dtype"] not in DType.__members__:
        names = " or ".join(DType.__members__)
        raise TuningTableError(f"{where}: dtype must be {names}, got {item['dtype']!r}")
    if (config.dtype.name, config.d_head) != (item["dtype"], item["d_head"]):
        raise TuningTableError(
            f"{where}: {kernel} is not for {item['dtype']} and d_head {item['d_head']}"
        )


def _check_ranges(entries: Sequence[Entry], where: str) -> None:
    ordered = sorted(entries, key=lambda e: (*map(str, e.subject()), e.seq_min))
    for one, other in itertools.pairwise(ordered):
        if one.subject() == other.subject() and one.covers(other.seq_min):
            raise TuningTableError(
                f"{where}: two entries for {one.gpu}, {one.dtype}, d_head {one.d_head} cover "
                f"sequence {other.seq_min}"
            )


def _or(kinds: Iterable[type]) -> str:
    return " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)


def render_table(entries: Sequence[Entry]) -> str:
    return json.dumps({"schema": SCHEMA, "entries": [asdict(e) for e in entries]}, indent=1) + "\n"


def merge(old: Sequence[Entry], new: Sequence[Entry]) -> list[Entry]:
    """New measurements of a GPU, dtype and head size replace the old ones as a whole: ranges from
    two sweeps do not fit together."""
    subjects = {entry.subject() for entry in new}
    kept = [entry for entry in old if entry.subject() not in subjects]
    return sorted([*kept, *new], key=lambda e: (*map(str, e.subject()), e.seq_min))


def _free_name(path: Path) -> Path:
    """Beside the table, for a damaged one: earlier damaged ones stay. Under the table's lock."""
    names = itertools.chain(["corrupt"], (f"corrupt.{n}" for n in itertools.count(2)))
    candidates = (path.with_name(f"{path.name}.{name}") for name in names)
    return next(candidate for candidate in candidates if not os.path.lexists(candidate))


def update_table(path: Path, new: Sequence[Entry]) -> list[str]:
    """Adds to the table at `path`, in one step; concurrent writers wait for each other. Returns
    notes: a table that cannot be read is kept beside the new one, not lost. Raises UnsafeFileError
    (an OSError) where the table or its lock is not a regular file, OSError, CacheLockTimeout, and
    TuningTableError for entries that no table may have."""
    notes = []
    refuse_special(path)  # before there is a lock beside it
    path.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(path):
        try:
            old = read_table(path)
        except FileNotFoundError:
            old = []
        except TuningTableError as error:
            aside = _free_name(path)
            path.rename(aside)
            notes.append(f"{error}; it was moved to {aside}")
            old = []
        text = render_table(merge(old, new))
        parse_table(text, "the new table")  # what is written can be read
        write_atomically(path, text.encode(), durable=True)
    return notes
