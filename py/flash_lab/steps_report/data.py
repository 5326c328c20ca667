"""What is known about each step: joined from a pt_bench store, an ncu_bench CSV and nvcc's code."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flash_helpers.base import csv_text
from flash_helpers.base.safe_read import read_regular
from flash_helpers.kernels.family import Step
from flash_helpers.kernels.history import load_steps

from ..bench.results import by_problem, config_of
from ..bench.row import Json
from ..bench.runs import RunError, rows_of
from ..sass.classes import count_classes
from ..sass.steps import Program

HEADLINE_LENGTH = 4096
YARDSTICK = "fa2"
# ncu_bench's column -> what the page calls it
NCU_COLUMNS = {
    "smsp__inst_executed.sum": "instructions",
    "smsp__inst_executed_op_ldsm.sum": "ldmatrix",
    "load_bank_conflicts": "load conflicts",
    "bank_conflicts": "conflicts",
    "tensor_pipe_pct": "tensor pipe %",
    "occupancy_pct": "occupancy %",
    "duration_ns": "ncu ns",
}


class ReportError(Exception):
    """The page cannot be made; the message says what is missing."""


@dataclass(frozen=True)
class Speed:
    """TFLOP/s of the two matmuls by sequence length: the step's and FlashAttention-2's."""

    tflops: Mapping[int, float]
    yardstick: Mapping[int, float]

    @property
    def lengths(self) -> list[int]:
        return sorted(self.tflops)

    def percent(self, length: int = HEADLINE_LENGTH) -> float:
        return 100 * self.tflops[length] / self.yardstick[length]

    @property
    def harmonic_mean(self) -> float:
        return statistics.harmonic_mean(list(self.tflops.values()))

    @property
    def harmonic_percent(self) -> float:
        """Of FlashAttention-2's harmonic mean over the same lengths."""
        lengths = [self.yardstick[length] for length in self.lengths]
        return 100 * self.harmonic_mean / statistics.harmonic_mean(lengths)


@dataclass(frozen=True)
class Code:
    """Of the kernel on one architecture."""

    registers: int
    instructions: int
    loop: int
    classes: Mapping[str, int]  # of the loop

    @classmethod
    def of(cls, program: Program) -> Code:
        listing = program.listing
        return cls(
            program.registers, len(listing.instructions), len(listing.loop),
            count_classes(listing.loop),
        )  # fmt: skip


@dataclass(frozen=True)
class StepFacts:
    step: Step
    code: Code
    speed: Speed | None = None
    counters: Mapping[str, float] = field(default_factory=dict)

    def gain(self, before: StepFacts) -> float | None:
        """Percent faster than the step before, at the headline length."""
        if self.speed is None or before.speed is None:
            return None
        mine, theirs = (x.speed.tflops[HEADLINE_LENGTH] for x in (self, before) if x.speed)
        return 100 * (mine / theirs - 1)

    def predecessor_gain(self, before: StepFacts, gpu: str) -> float:
        return 100 * (self.step.fa2[gpu] / before.step.fa2[gpu] - 1)


def read_speeds(path: Path) -> tuple[dict[int, Speed], Json]:
    """Step number -> its speeds, and the environment they were measured in. ReportError unless
    every step has a right result at every length, with the yardstick beside it."""
    try:
        rows, _ = rows_of(path)
    except RunError as error:
        raise ReportError(str(error)) from error
    found: dict[str, dict[int, float]] = {}
    yardstick: dict[int, float] = {}
    for problem in by_problem(rows):
        length = problem.seq_len
        for m in problem.ranked:
            config = config_of(m.row) if m.is_ours else None
            if config is not None:
                found.setdefault(config.kernel_name(), {})[length] = m.matmul_tflops
            elif m.row.provider == YARDSTICK:
                yardstick[length] = m.matmul_tflops
    speeds = {
        step.number: Speed(found.get(step.config.kernel_name(), {}), yardstick)
        for step in load_steps()
    }
    _require_complete(path, speeds, yardstick)
    return speeds, rows[-1].environment


def _require_complete(
    path: Path, speeds: Mapping[int, Speed], yardstick: Mapping[int, float]
) -> None:
    lengths = sorted({HEADLINE_LENGTH, *yardstick, *(n for s in speeds.values() for n in s.tflops)})
    missing = [
        f"step {number} at {length}"
        for number, speed in speeds.items()
        for length in lengths
        if length not in speed.tflops
    ]
    missing += [f"FlashAttention-2 at {length}" for length in lengths if length not in yardstick]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise ReportError(f"{path} has no result of {', '.join(missing[:5])}{more}")


def read_counters(path: Path) -> tuple[dict[int, dict[str, float]], dict[str, str]]:
    """Step number -> ncu's counters (names of NCU_COLUMNS), and the problem they are of.
    ReportError unless every step is there with every counter."""
    try:
        lines = csv_text.parse(read_regular(path).decode())
    except (OSError, ValueError) as error:
        raise ReportError(f"cannot read {path}: {error}") from error
    by_symbol: dict[str, dict[str, str]] = {}
    for line in lines:
        symbol = line.get("symbol") or ""
        if line.get("status") == "ok" and symbol not in by_symbol:
            by_symbol[symbol] = line
    counters: dict[int, dict[str, float]] = {}
    problem: dict[str, str] = {}
    for step in load_steps():
        row = by_symbol.get(step.config.kernel_name())
        if row is None:
            raise ReportError(f"{path} has no row of step {step.number} that is ok")
        counters[step.number] = _numbers(path, step.number, row)
        problem = {name: row.get(name, "?") for name in ("seq_len", "batch", "n_heads", "d_head")}
    return counters, problem


def _numbers(path: Path, number: int, row: Mapping[str, str]) -> dict[str, float]:
    try:
        found = {title: float(row[column]) for column, title in NCU_COLUMNS.items()}
        if wrong := [title for title, value in found.items() if not math.isfinite(value)]:
            raise ValueError(f"{wrong[0]} is not a finite number")
        return found
    except (KeyError, ValueError) as error:
        raise ReportError(
            f"{path}: step {number} lacks a counter ({error}); ncu_bench.py needs "
            "--metrics smsp__inst_executed.sum,smsp__inst_executed_op_ldsm.sum"
        ) from error


def join(
    programs: Sequence[Program],
    speeds: Mapping[int, Speed] | None = None,
    counters: Mapping[int, Mapping[str, float]] | None = None,
) -> list[StepFacts]:
    """All steps in order, with what there is."""
    return [
        StepFacts(
            step, Code.of(program), (speeds or {}).get(step.number),
            (counters or {}).get(step.number, {}),
        )
        for step, program in zip(load_steps(), programs, strict=True)
    ]  # fmt: skip
