"""From launches to one row for each kernel: joined with the checks, averaged, tested for sense.

A row is `ok`, `incomplete` (a counter beside the time is missing, or it was not launched once in
each run), `wrong` (its output is, so its time means nothing) or `failed`. Only the first two carry
values.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flash_helpers.base import csv_text
from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.flops import calc_total_flop
from flash_helpers.kernels.names import config_of_kernel
from flash_helpers.kernels.problem import AttentionProblem

from .ncu_classify import OURS, PROVIDERS, UNKNOWN, Identity, classify
from .ncu_metrics import (
    CLOCK,
    CYCLES,
    DURATION,
    LOAD_CONFLICTS,
    LOAD_WAVEFRONTS,
    Metric,
    MetricError,
)
from .ncu_read import Launch
from .stats import tflops

OK, INCOMPLETE, WRONG, FAILED = "ok", "incomplete", "wrong", "failed"
_CLOCK_TOLERANCE = 0.25  # cycles against time × clock: a wrong unit is off by 1000


@dataclass(frozen=True)
class Verdict:
    """What run_kernels.py found: its status (pass, FAIL, NOT RUN) and why."""

    status: str
    explanation: str


# By kernel symbol without the suffix of general ones, or by (reference, dtype): ("v2", "FP16").
Verdicts = dict[str | tuple[str, str], Verdict]


@dataclass
class NcuRow:
    """`values` by the metrics' keys; `launches` in all, `per_call` kernels for one call."""

    name: str
    provider: str
    dtype: DType
    problem: AttentionProblem
    config: KernelConfig | None = None
    symbol: str = ""
    status: str = OK
    notes: list[str] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)
    launches: int = 0
    tile: tuple[int, int] | None = None

    @property
    def is_measured(self) -> bool:
        return self.status in (OK, INCOMPLETE)

    @property
    def milliseconds(self) -> float:
        return self.values[DURATION.key] / 1e6

    def fail(self, why: str, status: str = FAILED) -> NcuRow:
        self.status = status
        self.notes.append(why)
        self.values.clear()
        return self

    def derive(self) -> None:
        """What follows from the counters and the shape."""
        size = self.problem
        self.values["attn_tflops"] = tflops(size.attn_flop(), self.milliseconds)
        self.values["matmul_tflops"] = tflops(size.matmul_flop(), self.milliseconds)
        if self.tile and not any(size.seqlen_q % block for block in self.tile):
            flop = calc_total_flop(size.batch, size.n_heads, size.seqlen_q, *self.tile, size.d_head)
            self.values["total_tflops"] = tflops(flop, self.milliseconds)
        conflicts = self.values.get(LOAD_CONFLICTS.key)
        wavefronts = self.values.get(LOAD_WAVEFRONTS.key)
        if conflicts is not None and wavefronts:
            self.values["load_conflict_pct"] = 100 * conflicts / wavefronts


def read_verdicts(text: str) -> Verdicts:
    """From the CSV that run_kernels.py prints, wherever it stands in `text`."""
    lines = text.splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith("kernel,symbol,dtype,")]
    if not starts:
        return {}
    found: Verdicts = {}
    table = [line for line in lines[starts[-1] :] if line and not line.startswith("==")]
    try:
        columns, *rows = csv_text.cells("\n".join(table))
    except ValueError:  # no verdict, so no row is measured
        return {}
    for cells in rows:
        row = dict(zip(columns, cells, strict=False))  # other lines may follow the table
        if row.get("status") not in ("pass", "FAIL", "NOT RUN"):
            continue
        verdict = Verdict(row["status"], row.get("explanation") or "")
        reference = row["kernel"].partition(":")[0]
        if row["symbol"]:
            config = config_of_kernel(row["symbol"])
            found[config.kernel_name() if config else row["symbol"]] = verdict
        elif reference in PROVIDERS:
            found[reference, row["dtype"]] = verdict
    return found


@dataclass
class Assembly:
    """Rows are made one by one from the launches of one run."""

    metrics: Sequence[Metric]
    n_runs: int
    verdicts: Verdicts
    launches: dict[str, list[Launch]]  # by symbol
    identities: dict[str, Identity]
    only_dtype: DType | None  # of a symbol that does not tell

    @classmethod
    def of(
        cls, launches: Iterable[Launch], metrics: Sequence[Metric], n_runs: int,
        verdicts: Verdicts, dtypes: set[DType],
    ) -> Assembly:  # fmt: skip
        groups: dict[str, list[Launch]] = {}
        for launch in launches:
            groups.setdefault(launch.symbol, []).append(launch)
        only = next(iter(dtypes)) if len(dtypes) == 1 else None
        return cls(metrics, n_runs, verdicts, groups, {s: classify(s) for s in groups}, only)

    def unknown(self) -> Counter[str]:
        """Launches of kernels that nobody claims, or whose element type nobody knows."""
        found: Counter[str] = Counter()
        for symbol, identity in self.identities.items():
            if identity.provider == UNKNOWN or not (identity.dtype or self.only_dtype):
                found[symbol] = len(self.launches[symbol])
        return found

    def our_row(self, config: KernelConfig, problem: AttentionProblem) -> NcuRow:
        symbol = config.kernel_name()
        row = NcuRow(config.short_form(), OURS, config.dtype, problem, config, symbol)
        row.tile = config.blocks()
        symbols = [s for s, identity in self.identities.items() if identity.config == config]
        return self._fill(row, symbols, self.verdicts.get(symbol))

    def reference_row(self, provider: str, dtype: DType, problem: AttentionProblem) -> NcuRow:
        symbols = [
            symbol
            for symbol, identity in self.identities.items()
            if identity.provider == provider and (identity.dtype or self.only_dtype) is dtype
        ]
        labels = dict.fromkeys(self.identities[symbol].label for symbol in symbols)
        name = " + ".join(labels) or provider.upper()
        row = NcuRow(f"{name} ({dtype.name}, {problem.d_head})", provider, dtype, problem)
        return self._fill(row, symbols, self.verdicts.get((provider, dtype.name)))

    def _fill(self, row: NcuRow, symbols: list[str], verdict: Verdict | None) -> NcuRow:
        row.launches = sum(len(self.launches[symbol]) for symbol in symbols)
        if verdict is None:
            return row.fail("the run ended before its output was checked")
        if verdict.status != "pass":
            status = WRONG if verdict.status == "FAIL" else FAILED
            return row.fail(verdict.explanation or "run_kernels.py gives no reason", status)
        if not symbols:
            return row.fail("it ran, but ncu profiled no kernel of it")
        try:
            self._average(row, symbols)
            check_clock(row.values)
        except MetricError as error:
            return row.fail(str(error))
        row.derive()
        return row

    def _average(self, row: NcuRow, symbols: list[str]) -> None:
        """A call may be several kernels: their times add up, and the longest one tells the rest."""
        times = {s: [DURATION.read(x.values) for x in self.launches[s]] for s in symbols}
        main = max(symbols, key=lambda s: sum(times[s]))
        row.symbol, row.tile = main, row.tile or self.identities[main].tile
        per_call = self._launches_of_a_call(row, symbols)
        for metric in self.metrics:
            try:
                row.values[metric.key] = self._mean(metric, symbols, main, per_call)
            except MetricError as error:
                if metric in (DURATION, CYCLES):
                    raise
                row.status = INCOMPLETE
                row.notes.append(str(error))
        spread = max(times[main]) - min(times[main])
        row.values["spread_pct"] = 100 * spread / statistics.fmean(times[main])

    def _launches_of_a_call(self, row: NcuRow, symbols: list[str]) -> dict[str, int]:
        """By symbol. What is not one launch in each run is noted, and makes the row incomplete: of
        ours, whose call is one launch, the figures are still those of one; of others the launches
        of a run are taken for one call. Raises MetricError where that is no whole number."""
        counts = {symbol: len(self.launches[symbol]) for symbol in symbols}
        odd = next((n for n in counts.values() if n != self.n_runs), None)
        said = f"{odd} launches of it were profiled in {self.n_runs} runs"
        if row.provider == OURS:
            if len(symbols) > 1:
                raise MetricError(f"{len(symbols)} kernels of it were profiled, and a call is one")
            if odd is not None:
                row.status = INCOMPLETE
                row.notes.append(f"{said}: the figures are of one launch")
            return dict.fromkeys(symbols, 1)
        if any(n % self.n_runs for n in counts.values()):
            raise MetricError(f"{said}: the time of one call is not known")
        per_call = {symbol: n // self.n_runs for symbol, n in counts.items()}
        n_kernels = sum(per_call.values())
        if n_kernels > 1:
            row.notes.append(f"one call is {n_kernels} kernels: times and conflicts are sums")
        if odd is not None:
            row.status = INCOMPLETE
            row.notes.append(f"{said}: if that was more than one call, its times are too long")
        return per_call

    def _mean(
        self, metric: Metric, symbols: list[str], main: str, per_call: Mapping[str, int]
    ) -> float:
        """Per call for what adds up, per launch of the main kernel for the rest."""
        total = 0.0
        for symbol in symbols if metric.additive else [main]:
            taken = self.launches[symbol]
            units = {x.values[metric.name].unit for x in taken if metric.name in x.values}
            if metric.units is None and len(units) > 1:
                raise MetricError(f"{metric.name} comes in several units: {sorted(units)}")
            mean = statistics.fmean(metric.read(launch.values) for launch in taken)
            total += mean * (per_call[symbol] if metric.additive else 1)
        return total


def check_clock(values: dict[str, float]) -> None:
    """Time, cycles and clock are three counters for two quantities: they must agree."""
    if CLOCK.key not in values:
        return
    expected = values[DURATION.key] * 1e-9 * values[CLOCK.key]
    if abs(values[CYCLES.key] / expected - 1) > _CLOCK_TOLERANCE:
        raise MetricError(
            f"{values[CYCLES.key]:,.0f} cycles do not fit {values[DURATION.key]:,.0f} ns at "
            f"{values[CLOCK.key] / 1e9:.3f} GHz: a unit is wrong"
        )
