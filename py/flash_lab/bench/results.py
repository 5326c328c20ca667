"""What the rows of a store mean: samples that count, figures, ranking within a problem."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flash_helpers.base.timing import standard_error
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.names import parse_kernel_name_into_config
from flash_helpers.kernels.problem import AttentionProblem

from .providers import CEILING, OURS
from .records import OK
from .row import Row
from .row_fields import is_size
from .stats import Summary, summarize, tflops


@dataclass(frozen=True)
class Measurement:
    """One kernel on one problem; of a reference, all its groups together."""

    rows: tuple[Row, ...]
    order: int = 0  # among all that ran on the problem

    @property
    def row(self) -> Row:
        return self.rows[0]

    @property
    def kernel(self) -> str:
        return self.row.kernel

    @property
    def label(self) -> str:
        return self.row.label or self.row.kernel

    @property
    def is_ours(self) -> bool:
        return self.row.provider == OURS

    @property
    def problem(self) -> AttentionProblem:
        return self.row.problem

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
        found = [row.note for row in self.rows] + [throttle_note(row) for row in self.rows]
        return list(filter(None, dict.fromkeys(found)))

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

    problem: AttentionProblem
    seed: int
    ranked: list[Measurement]
    others: list[Row]

    @property
    def reference(self) -> Measurement | None:
        """The yardstick: the first reference that was asked for."""
        references = [m for m in self.ranked if not m.is_ours]
        return min(references, key=lambda m: m.order, default=None)

    def title(self) -> str:
        return f"{self.problem}, seed {self.seed}"

    @property
    def seq_len(self) -> int:
        """Of the queries."""
        return self.problem.seqlen_q


def by_problem(rows: Iterable[Row]) -> list[ProblemResult]:
    """Final rows, grouped by problem in the order of the first row of each; ceilings are none."""
    problems: dict[AttentionProblem, list[Row]] = {}
    for row in rows:
        if row.provider != CEILING:
            problems.setdefault(row.problem, []).append(row)
    return [_problem(found) for found in problems.values()]


def _problem(rows: list[Row]) -> ProblemResult:
    kernels: dict[str, list[Row]] = {}
    for row in rows:
        if row.status == OK and row.samples_ms:
            kernels.setdefault(row.kernel, []).append(row)
    measured = [Measurement(tuple(found), order) for order, found in enumerate(kernels.values())]
    others: dict[tuple[str, str], Row] = {}
    for row in rows:  # an absent reference is said once, not once a group
        if row.status != OK:
            others.setdefault((row.kernel, row.status), row)
    ranked = sorted(measured, key=lambda m: m.summary.median)
    return ProblemResult(rows[0].problem, rows[0].seed, ranked, list(others.values()))


def usable_bursts(row: Row) -> list[list[float]]:
    """The samples that no throttling spoilt, by burst; all of them where it spoilt every one."""
    spoilt = {int(index) for index in row.throttled}
    samples = row.samples_ms
    if len(spoilt) >= len(samples):
        spoilt = set()
    bursts, start = [], 0
    for size in row.bursts or [1] * len(samples):
        indices = range(start, start + size)
        bursts.append([samples[i] for i in indices if i not in spoilt])
        start += size
    return [burst for burst in bursts if burst]


def throttle_note(row: Row) -> str:
    spoilt = row.throttled
    if not spoilt:
        return ""
    reasons = ", ".join(sorted(set(spoilt.values())))
    n = len(row.samples_ms)
    if len(spoilt) >= n:
        return f"all {n} samples were taken throttled ({reasons}): not comparable with others"
    return f"{len(spoilt)} of {n} samples left out: {reasons}"


def gpu_sms(environment: Mapping[str, Any]) -> int:
    """How many SMs the GPU has; 0 where a row does not say."""
    found = environment.get("gpu_sms")
    return found if is_size(found) else 0


def config_of(row: Row) -> KernelConfig | None:
    """The configuration of one of our kernels; None for a name that this version does not know."""
    try:
        return parse_kernel_name_into_config(row.kernel)
    except ValueError:
        return None


def clock_line(measurements: Sequence[Measurement]) -> str:
    """Of all that ran on one problem, in a sentence."""
    rows = [row for m in measurements for row in m.rows]
    clocks = [row.clocks for row in rows if row.clocks]
    parts = []
    if clocks:
        low, high = (f(c["sm_mhz"] for c in clocks) for f in (min, max))
        watts = max(c["watts"] for c in clocks)
        limited = max(c["power_limited"] for c in clocks)
        parts.append(
            f"SM {low:.0f}-{high:.0f} MHz, up to {watts:.0f} W, "
            f"{max(c['celsius'] for c in clocks):.0f} °C, at the power limit {limited:.0%}"
        )
    effective = [row.effective_sm_mhz for row in rows if row.effective_sm_mhz is not None]
    if effective:
        parts.append(f"by the SMs' own counters {min(effective):.0f}-{max(effective):.0f} MHz")
    parts += sorted({str(row.clock_note) for row in rows if row.clock_note})
    return "; ".join(parts) or "clocks: not sampled"
