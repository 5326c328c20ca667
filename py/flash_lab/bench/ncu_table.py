"""ncu_bench's tables and CSV lines."""

from collections import Counter
from collections.abc import Mapping, Sequence

from flash_helpers.base import csv_text
from flash_helpers.base.text_table import text_table

from .ncu import Result
from .ncu_metrics import LOAD_CONFLICTS, LOAD_WAVEFRONTS, Metric
from .ncu_rows import NcuRow

_HIDDEN = (LOAD_CONFLICTS, LOAD_WAVEFRONTS)  # shown as their quotient
_DERIVED = (
    ("load_conflict_pct", "load confl. %", 1),
    ("total_tflops", "TFLOP/s", 1),
    ("attn_tflops", "Attn TFLOP/s", 1),
    ("matmul_tflops", "matmul TFLOP/s", 1),
)
_RATIOS = (("relative", "duration_ns"), ("relative_cycles", "cycles"))
NOT_KNOWN = "n/a"


def order(result: Result, sort: bool) -> list[NcuRow]:
    """Measured rows, fastest first unless `sort` is off; never one without a time."""
    measured = [row for row in result.rows if row.is_measured]
    return sorted(measured, key=lambda row: row.milliseconds) if sort else measured


def ratios(result: Result, row: NcuRow) -> dict[str, float]:
    """How many times as fast as the reference the row is, by time and by cycles."""
    reference = result.reference_for(row.dtype)
    if reference is None:
        return {}
    return {name: reference.values[key] / row.values[key] for name, key in _RATIOS}


def render_table(result: Result, metrics: Sequence[Metric], sort: bool) -> str:
    """The table, if there is anything in it, and a line for everything that is not in it."""
    rows = order(result, sort)
    lines = [str(result.case)]
    if rows:
        lines += [_table(result, rows, metrics), _legend(result)]
    return "\n".join([*lines, *render_notes(result)])


def _table(result: Result, rows: Sequence[NcuRow], metrics: Sequence[Metric]) -> str:
    shown = [metric for metric in metrics if metric not in _HIDDEN]
    columns = [
        "kernel", *(metric.title for metric in shown), *(title for _, title, _ in _DERIVED),
        "relative", "rel. cycles", "spread %",
    ]  # fmt: skip
    lines = []
    for row in rows:
        relative = ratios(result, row)
        lines.append([
            row.name,
            *(_cell(row.values, m.key, m.digits, m.divisor) for m in shown),
            *(_cell(row.values, key, digits) for key, _, digits in _DERIVED),
            *(_cell(relative, name, 3) for name, _ in _RATIOS),
            _cell(row.values, "spread_pct", 1) if row.launches > 1 else "-",
        ])  # fmt: skip
    return text_table(columns, lines)


def _cell(values: Mapping[str, float], key: str, digits: int, divisor: float = 1.0) -> str:
    value = values.get(key)
    return NOT_KNOWN if value is None else f"{value / divisor:,.{digits}f}"


def _legend(result: Result) -> str:
    bases = {dtype: result.reference_for(dtype) for dtype in result.case.dtypes}
    named = [f"{row.name}" for row in bases.values() if row is not None]
    base = f"relative: times as fast as {', '.join(named)}" if named else "relative: no reference"
    return (
        f"{base}. TFLOP/s counts what the tiles compute, Attn TFLOP/s attention without regard to "
        "tiles, matmul TFLOP/s the two products alone"
    )


def render_notes(result: Result) -> list[str]:
    """What is missing or odd, each once. A note that many rows share names the first two."""
    notes: dict[tuple[str, str], list[str]] = {}
    for row in result.rows:
        for note in row.notes:
            notes.setdefault((row.status, note), []).append(row.name)
    lines = []
    for (status, note), names in notes.items():
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        lines.append(f"{status}: {', '.join(names[:2])}{more}: {note}")
    lines += result.troubles
    reasons = Counter(item.reason for item in result.case.skipped)
    lines += [f"skipped: {count} kernel(s): {reason}" for reason, count in reasons.items()]
    if result.unknown:
        total = sum(result.unknown.values())
        lines.append(f"{total} launch(es) of {len(result.unknown)} kernel(s) that nobody claims:")
        lines += [f"  {count} x {symbol[:200]}" for symbol, count in result.unknown.items()]
    return lines


_IDENTITY = (
    "kernel", "symbol", "provider", "dtype", "d_head", "seq_len", "batch", "n_heads", "seed",
    "n_runs", "launches", "status", "notes",
)  # fmt: skip


def render_csv(
    result: Result, metrics: Sequence[Metric], sort: bool, origin: Mapping[str, str], header: bool
) -> str:
    """A line for every row, those without a time last. Unknown values are empty. `origin`: where
    the numbers come from, in every line."""
    numbers = [metric.key for metric in metrics] + [key for key, _, _ in _DERIVED]
    numbers += ["spread_pct", *(name for name, _ in _RATIOS)]
    rows = []
    rest = [row for row in result.rows if not row.is_measured]
    for row in [*order(result, sort), *rest]:
        values = row.values | (ratios(result, row) if row.is_measured else {})
        rows.append({
            "kernel": row.name, "symbol": row.symbol, "provider": row.provider,
            "dtype": row.dtype.name, "d_head": row.problem.d_head,
            "seq_len": row.problem.seqlen_q, "batch": row.problem.batch,
            "n_heads": row.problem.n_heads, "seed": result.case.seed,
            "n_runs": result.case.n_runs, "launches": row.launches,
            "status": row.status, "notes": "; ".join(row.notes),
            **{key: f"{values[key]:.10g}" for key in numbers if key in values},
            **origin,
        })  # fmt: skip
    return csv_text.render(rows, [*_IDENTITY, *numbers, *origin], header=header)
