"""What the rows of a store mean: samples that count, figures, ranking within a problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flash_helpers.base.timing import standard_error
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.names import parse_kernel_name_into_config
from flash_helpers.kernels.problem import AttentionProblem

from .providers import CEILING, OURS
from .records import OK, Record
from .row_fields import is_size
from .shapes import problem_of
from .stats import Summary, summarize, tflops

ShapeKey = tuple[Any, ...]
_SIZES = ("dtype", "batch", "n_heads", "n_kv_heads", "seq_len", "d_head", "seed")


@dataclass(frozen=True)
class Measurement:
    """One kernel on one problem; of a reference, all its groups together."""

    rows: tuple[Record, ...]

    @property
    def row(self) -> Record:
        return self.rows[0]

    @property
    def kernel(self) -> str:
        return str(self.row["kernel"])

    @property
    def label(self) -> str:
        return str(self.row.get("label") or self.row["kernel"])

    @property
    def is_ours(self) -> bool:
        return bool(self.row["provider"] == OURS)

    @property
    def shape(self) -> dict[str, Any]:
        shape: dict[str, Any] = self.row["shape"]
        return shape

    @property
    def problem(self) -> AttentionProblem:
        return problem_of(self.shape)

    @cached_property
    def bursts(self) -> list[list[float]]:
        return [burst for row in self.rows for burst in usable_bursts(row)]

    @cached_property
    def summary(self) -> Summary:
        return summarize([ms for burst in self.bursts for ms in burst])

    @property
    def standard_error(self) -> float:
        return standard_error(self.bursts)

    @property
    def notes(self) -> list[str]:
        """What a reader has to know, beside the figures."""
        found = {str(row.get("note", "")): None for row in self.rows}
        found |= {throttle_note(row): None for row in self.rows}
        return [note for note in found if note]

    @property
    def matmul_tflops(self) -> float:
        return tflops(self.problem.matmul_flop(), self.summary.median)

    @property
    def n_bytes(self) -> int:
        """Q, K and V read once and O written once: what has to cross the device memory."""
        return self.problem.n_bytes()

    @property
    def intensity(self) -> float:
        """FLOP of the two matmuls for each of those bytes."""
        return self.problem.matmul_flop() / self.n_bytes

    @property
    def attn_tflops(self) -> float:
        return tflops(self.problem.attn_flop(), self.summary.median)


@dataclass(frozen=True)
class ProblemResult:
    """Everything about one problem: what was measured, fastest first, and what was not."""

    shape: dict[str, Any]
    ranked: list[Measurement]
    others: list[Record]

    @property
    def reference(self) -> Measurement | None:
        """The yardstick: the first reference that was asked for."""
        references = [m for m in self.ranked if not m.is_ours]
        return min(references, key=lambda m: m.row["order"], default=None)

    def title(self) -> str:
        s = self.shape
        return (
            f"{s['dtype']}, batch {s['batch']}, heads {s['n_heads']}, seq {s['seq_len']}, "
            f"d {s['d_head']}{', causal' if s.get('causal') else ''}, seed {s['seed']}"
        )


def shape_key(row: Record) -> ShapeKey:
    shape = row["shape"]
    names = ("dtype", "d_head", "seq_len", "batch", "n_heads", "n_kv_heads", "causal")
    return tuple(shape.get(name) for name in names)


def by_problem(rows: Iterable[Record]) -> list[ProblemResult]:
    """Final rows, grouped by problem in the order of the first row of each; ceilings are none."""
    problems: dict[ShapeKey, list[Record]] = {}
    for order, row in enumerate(rows):
        if row["provider"] != CEILING:
            problems.setdefault(shape_key(row), []).append({**row, "order": order})
    return [_problem(found) for found in problems.values()]


def _problem(rows: list[Record]) -> ProblemResult:
    kernels: dict[str, list[Record]] = {}
    for row in rows:
        if row["status"] == OK and row.get("samples_ms"):
            kernels.setdefault(row["kernel"], []).append(row)
    measured = [Measurement(tuple(found)) for found in kernels.values()]
    others: dict[tuple[str, str], Record] = {}
    for row in rows:  # an absent reference is said once, not once a group
        if row["status"] != OK:
            others.setdefault((row["kernel"], row["status"]), row)
    ranked = sorted(measured, key=lambda m: m.summary.median)
    return ProblemResult(rows[0]["shape"], ranked, list(others.values()))


def lacking(row: Record) -> str:
    """What a final row without problem_with() lacks to be computed with, in a sentence; else an
    empty string."""
    is_ok, is_ceiling = row["status"] == OK, row["provider"] == CEILING
    shape = row.get("shape")
    if shape is None:
        return "it has no shape"
    missing = [name for name in (("dtype",) if is_ceiling else _SIZES) if name not in shape]
    if missing:
        return f"its shape has no {missing[0]}"
    if is_ok and not row.get("samples_ms"):
        return "it is ok, but has no samples_ms"
    if is_ok and is_ceiling and not ("flop" in row or "bytes" in row):
        return "it is of a ceiling, but has neither flop nor bytes"
    return "" if is_ok or "error" in row else "it has no error"


def usable_bursts(row: Record) -> list[list[float]]:
    """The samples that no throttling spoilt, by burst; all of them where it spoilt every one."""
    spoilt = {int(index) for index in row.get("throttled") or {}}
    samples = row["samples_ms"]
    if len(spoilt) >= len(samples):
        spoilt = set()
    bursts, start = [], 0
    for size in row.get("bursts") or [1] * len(samples):
        indices = range(start, start + size)
        bursts.append([samples[i] for i in indices if i not in spoilt])
        start += size
    return [burst for burst in bursts if burst]


def throttle_note(row: Record) -> str:
    spoilt = row.get("throttled") or {}
    if not spoilt:
        return ""
    reasons = ", ".join(sorted(set(spoilt.values())))
    n = len(row["samples_ms"])
    if len(spoilt) >= n:
        return f"all {n} samples were taken throttled ({reasons}): not comparable with others"
    return f"{len(spoilt)} of {n} samples left out: {reasons}"


def gpu_sms(environment: Mapping[str, Any]) -> int:
    """How many SMs the GPU has; 0 where a row does not say."""
    found = environment.get("gpu_sms")
    return found if is_size(found) else 0


def config_of(row: Record) -> KernelConfig | None:
    """The configuration of one of our kernels; None for a name that this version does not know."""
    try:
        return parse_kernel_name_into_config(row["kernel"])
    except ValueError:
        return None


def clock_line(measurements: Sequence[Measurement]) -> str:
    """Of all that ran on one problem, in a sentence."""
    rows = [row for m in measurements for row in m.rows]
    clocks = [row["clocks"] for row in rows if row.get("clocks")]
    parts = []
    if clocks:
        low, high = (f(c["sm_mhz"] for c in clocks) for f in (min, max))
        watts = max(c["watts"] for c in clocks)
        limited = max(c["power_limited"] for c in clocks)
        parts.append(
            f"SM {low:.0f}-{high:.0f} MHz, up to {watts:.0f} W, "
            f"{max(c['celsius'] for c in clocks):.0f} °C, at the power limit {limited:.0%}"
        )
    effective = [row["effective_sm_mhz"] for row in rows if "effective_sm_mhz" in row]
    if effective:
        parts.append(f"by the SMs' own counters {min(effective):.0f}-{max(effective):.0f} MHz")
    parts += sorted({str(row["clock_note"]) for row in rows if row.get("clock_note")})
    return "; ".join(parts) or "clocks: not sampled"
