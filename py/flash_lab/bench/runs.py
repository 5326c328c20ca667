"""Recorded runs, for tools that compare them: from a store, or from the JSON of the first stage."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flash_helpers.base.safe_read import parse_json, read_regular
from flash_helpers.kernels.problem import AttentionProblem

from .providers import OURS
from .records import OK
from .results import Measurement, by_problem
from .row import Row
from .store import contents_of

_FIRST_STAGE = b'{\n "provenance"'
RowKey = tuple[AttentionProblem, str]
_FIRST_STAGE_BURST = 4  # what pt_bench took in turns before it kept a store


class RunError(ValueError):
    """The file holds nothing to compare; the message says why."""


@dataclass(frozen=True)
class Run:
    """The rows of one file. `measured` has what is ok, `failed` the others."""

    path: str
    measured: dict[RowKey, Measurement]
    failed: dict[RowKey, Row]
    gpus: frozenset[str]
    policies: frozenset[str]  # what must agree for times to be comparable
    notes: list[str] = field(default_factory=list)


def load_run(path: Path) -> Run:
    """Raises RunError."""
    rows, notes = rows_of(path)
    run = make_run(str(path), rows, notes)
    if not run.measured:
        raise RunError(f"cannot use {path}: none of its {len(rows)} rows is ok")
    return run


def rows_of(path: Path) -> tuple[list[Row], list[str]]:
    """The final rows of a file, and notes on what was left out. Raises RunError."""
    try:
        data = read_regular(path)
        if data.startswith(_FIRST_STAGE):
            rows, notes = _first_stage(parse_json(data))
        else:
            contents = contents_of(data)
            rows, notes = contents.finished(), [f"{path}, {line}" for line in contents.left_out()]
    except OSError as error:
        raise RunError(f"cannot use {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"cannot use {path}: {error}") from error
    notes += [f"{path}, {note}" for note in drop_incomplete(rows)]
    return rows, [*notes, *_several_environments(rows, path), *_last_stages(rows)]


def drop_incomplete(rows: list[Row]) -> list[str]:
    """Takes away the rows that nothing can be computed with. A sentence for each."""
    problems = [row.lacking() for row in rows]
    notes = [
        f"a row of {row.kernel} is left out: {problem}"
        for row, problem in zip(rows, problems, strict=True)
        if problem
    ]
    rows[:] = [row for row, problem in zip(rows, problems, strict=True) if not problem]
    return notes


def make_run(path: str, rows: Iterable[Row], notes: list[str]) -> Run:
    rows = list(rows)
    measured: dict[RowKey, Measurement] = {}
    failed: dict[RowKey, Row] = {}
    for problem in by_problem(rows):
        measured |= {(m.problem, m.kernel): m for m in problem.ranked}
        failed |= {(row.problem, row.kernel): row for row in problem.others}
    return Run(
        path,
        measured,
        {key: row for key, row in failed.items() if key not in measured},
        frozenset(str(row.environment.get("gpu")) for row in rows),
        frozenset(_policy(row) for row in rows if row.status == OK),
        notes,
    )


def _policy(row: Row) -> str:
    policy = row.policy
    cold = "cold L2" if policy.get("cold_l2", True) else "warm L2"
    return f"{cold}, graph" if policy.get("graph") else cold


def _several_environments(rows: list[Row], path: Path) -> list[str]:
    """Rows of one kernel from two builds in one file would be taken together."""
    found = {row.environment_fingerprint for row in rows}
    if len(found) <= 1:
        return []
    latest = rows[-1].environment_fingerprint
    left_out = [row for row in rows if row.environment_fingerprint != latest]
    rows[:] = [row for row in rows if row.environment_fingerprint == latest]
    return [f"{path}: {len(left_out)} rows of other environments than the last are left out"]


def _last_stages(rows: list[Row]) -> list[str]:
    """A tuner measures its leaders again: a kernel's last pass counts, not the sum of them."""
    last: dict[object, str] = {}
    for row in rows:
        last[row.subject] = row.stage
    kept = [row for row in rows if row.stage == last[row.subject]]
    dropped = len(rows) - len(kept)
    rows[:] = kept
    return [f"{dropped} rows of earlier passes are left out"] if dropped else []


def _first_stage(data: dict[str, Any]) -> tuple[list[Row], list[str]]:
    rows, notes = [], []
    for row in data["rows"]:
        try:
            rows.append(Row.from_json(_as_in_a_store(row) | {"environment": data["provenance"]}))
        except ValueError as error:
            notes.append(f"a row of {row['name']} is left out: {error}")
    return rows, notes


def _as_in_a_store(row: dict[str, Any]) -> dict[str, Any]:
    references = {"PyTorch FlashAttention-2": "fa2", "PyTorch cuDNN": "cudnn"}
    whole, rest = divmod(len(row["samples_ms"]), _FIRST_STAGE_BURST)
    return {
        "status": OK if row["status"] == "ok" else "launch_fail",
        "provider": references.get(row["name"], OURS),
        "kernel": references.get(row["name"], row["name"]),
        "label": row["name"],
        "error": row["note"],
        "policy": {"cold_l2": True},
        "shape": {
            "dtype": row["dtype"], "batch": row["batch"], "n_heads": row["heads"],
            "n_kv_heads": row["heads"], "seq_len": row["seq_len"], "d_head": row["d_head"],
            "seed": row["seed"], "causal": False,
        },
        "samples_ms": row["samples_ms"],
        "bursts": [*[_FIRST_STAGE_BURST] * whole, *([rest] if rest else [])],
    }  # fmt: skip


def observations(measurement: Measurement) -> list[float]:
    """What counts as one observation: the mean of a burst."""
    return [statistics.fmean(burst) for burst in measurement.bursts]
