"""Is compare.py a gate? Runs of one build must pass it, and a kernel slowed by 5 % must not.

Runs are taken in turns: base, then again and again base and a run in which one kernel is slowed
(slowed_backend.py). Every base is compared with the one before it, and every slowed run with the
base before it, each pair as two stores given to compare.py.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flash_helpers.kernels.problem import AttentionProblem
from flash_lab.bench import compare_cli
from flash_lab.bench.comparison import Rules, compare_runs
from flash_lab.bench.events import Event
from flash_lab.bench.measure import Json
from flash_lab.bench.records import encode
from flash_lab.bench.results import Measurement
from flash_lab.bench.row import Row, shape_of
from flash_lab.bench.runs import RunError, load_run, observations
from flash_lab.bench.significance import shift
from flash_lab.bench.sweep import Job

SLOWED_BACKEND = "tests.acceptance.slowed_backend:SlowedBackend"
BLOCK = 64  # keys in a block of every kernel that the gate takes
# 19 blocks of keys and 20 are 5.26 % apart in the main loop; beginning and end of the kernel are
# the same, so that is 5.0-5.2 % of the time (measured with each run of the gate).
BASE_BLOCKS, SLOWED_BLOCKS = 38, 40


@dataclass(frozen=True)
class GateCase:
    """What one run measures; takes the place of a sweep.Case."""

    problem: AttentionProblem
    seed: int
    ours: tuple[Job, ...]
    references: tuple[Job, ...]
    slowed: str = ""
    skipped: tuple[tuple[Job, str], ...] = ()

    def shape(self) -> Event:
        return shape_of(self.problem, self.seed) | {
            "kv_len": BASE_BLOCKS * BLOCK,
            "slowed_kernel": self.slowed,
            "slowed_kv_len": SLOWED_BLOCKS * BLOCK,
        }

    def groups(self, size: int) -> list[tuple[Job, ...]]:
        return [(*self.references, *self.ours)]


def plan(n_rounds: int) -> list[tuple[str, int]]:
    """(kind, round) of every run in the order in which they are made."""
    runs = [("base", 0)]
    for number in range(1, n_rounds + 1):
        runs += [("base", number), ("slowed", number)]
    return runs


def stage_name(kind: str, number: int) -> str:
    return f"{kind}-{number:02}"


def verdicts(rows: Sequence[Row]) -> Iterator[Json]:
    """One for every comparison, from all rows of a gate's store; at last a summary."""
    runs: dict[str, list[Row]] = {}
    for row in rows:
        runs.setdefault(row.stage, []).append(row)
    n_rounds = sum(name.startswith("slowed") for name in runs)
    _check_complete(runs, n_rounds)
    found = []
    for number in range(1, n_rounds + 1):
        base, again = (runs[stage_name("base", n)] for n in (number - 1, number))
        slowed = runs[stage_name("slowed", number)]
        found.append({"check": "gate", "kind": "same build", "round": number, **judge(base, again)})
        name = slowed[0].shape["slowed_kernel"]
        outcome = judge(again, slowed)
        for mode in ("plain", "anchored"):
            outcome[f"{mode}_found"] = outcome[f"{mode}_regressions"] == [name]
        found.append(
            {"check": "gate", "kind": "slowed", "round": number, "kernel": name, **outcome}
        )
    yield from found
    yield summary(found, rows)


def _check_complete(runs: Mapping[str, Sequence[Row]], n_rounds: int) -> None:
    """Raises RunError."""
    names = [stage_name(kind, number) for kind, number in plan(n_rounds)]
    if missing := [name for name in names if name not in runs]:
        raise RunError(f"the gate's store lacks the run {missing[0]}")
    if not all("slowed_kernel" in row.shape for rows in runs.values() for row in rows):
        raise RunError("a row of the gate's store does not say which kernel was slowed")


def judge(base: Sequence[Row], new: Sequence[Row]) -> Json:
    """compare.py's exit code, and the kernels that it calls regressions, plain and --anchored."""
    found: Json = {}
    with tempfile.TemporaryDirectory(prefix="flash-gate-") as folder:
        paths = []
        for name, rows in (("base", base), ("new", new)):
            path = Path(folder) / f"{name}.jsonl"
            path.write_bytes(b"".join(encode(_plain(row).to_json()) for row in rows))
            paths.append(path)
        for mode, options in (("plain", []), ("anchored", ["--anchored"])):
            with contextlib.redirect_stdout(io.StringIO()):
                found[f"{mode}_exit"] = compare_cli.main([*map(str, paths), *options])
            rules = Rules(anchored=mode == "anchored")
            lines = compare_runs(load_run(paths[0]), load_run(paths[1]), rules).lines
            found[f"{mode}_regressions"] = sorted(
                line.key[1] for line in lines if line.is_regression
            )
            ours = [100 * (line.shift.estimate - 1) for line in lines if line.is_ours]
            found[f"{mode}_changes_pct"] = [round(change, 2) for change in ours]
    return found


def _plain(row: Row) -> Row:
    """As pt_bench would have written it, without what marks the run."""
    policy = {name: value for name, value in row.policy.items() if name != "stage"}
    return replace(row, policy=policy, time=None)


def summary(found: Sequence[Json], rows: Sequence[Row]) -> Json:
    same = [line for line in found if line["kind"] == "same build"]
    slowed = [line for line in found if line["kind"] == "slowed"]
    result: Json = {"check": "gate", "kind": "summary", "rounds": len(same)}
    for mode in ("plain", "anchored"):
        result[f"{mode}_passed"] = sum(line[f"{mode}_exit"] == 0 for line in same)
        result[f"{mode}_found"] = sum(
            line[f"{mode}_exit"] == 1 and line[f"{mode}_found"] for line in slowed
        )
    result["true_slowdown_pct"] = true_slowdown(rows)
    result["ok"] = 0 < len(same) == result["plain_passed"] == result["plain_found"]
    return result


def true_slowdown(rows: Sequence[Row]) -> dict[str, list[float]]:
    """By kernel, from all runs of a kernel together: [estimate, low, high] in %, 95 % sure."""
    times: dict[tuple[str, bool], list[float]] = {}
    for row in rows:
        if row.status == "ok" and row.provider == "ours":
            is_slowed = row.shape["slowed_kernel"] == row.kernel
            own = times.setdefault((row.kernel, is_slowed), [])
            own.append(statistics.fmean(observations(Measurement((row,)))))
    found = {}
    for kernel in sorted({kernel for kernel, _ in times}):
        if (kernel, True) in times and (kernel, False) in times:
            change = shift(times[kernel, False], times[kernel, True], 0.05)
            values = (change.estimate, change.low, change.high)
            found[kernel] = [round(100 * (value - 1), 2) for value in values]
    return found
