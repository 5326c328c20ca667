"""Results as tables, CSV and JSON."""

import json
import statistics
from collections.abc import Sequence

from flash_helpers.base import csv_text
from flash_helpers.base.text_table import text_table

from ..waves.kernels import n_blocks
from ..waves.plan import plan
from .results import Measurement, ProblemResult, clock_line, config_of, gpu_sms
from .row import Row

COLUMNS = (
    "kernel", "mean ms", "median", "min", "max", "stdev", "p90", "noise %", "relative",
    "Attn TFLOP/s", "matmul TFLOP/s", "MHz",
)  # fmt: skip


def table(problem: ProblemResult, top: int = 0) -> str:
    """`relative`: how many times as fast as the first reference. `noise %`: the standard error of
    the mean, where a burst counts as one observation. `Attn TFLOP/s` counts the softmax too, as
    the seeds do; peers are compared on the two matmuls alone. `MHz`: the SMs' own counters."""
    lines = [problem.title(), clock_line(problem.ranked)]
    if problem.ranked:
        lines.append(_ranking(problem, top))
    lines += [f"{row.status}: {row.kernel}: {row.error}" for row in problem.others]
    lines += [f"note: {m.label}: {note}" for m in problem.ranked for note in m.notes]
    return "\n".join(lines)


def _ranking(problem: ProblemResult, top: int) -> str:
    ours = [m for m in problem.ranked if m.is_ours]
    hidden = ours[top:] if top else []
    shown = [m for m in problem.ranked if m not in hidden]
    text = text_table(COLUMNS, ([m.label, *_figures(m, problem.reference)] for m in shown))
    return f"{text}\n({len(hidden)} slower kernels not shown)" if hidden else text


def _figures(m: Measurement, reference: Measurement | None) -> list[str]:
    s = m.summary
    mhz = m.row.effective_sm_mhz
    times = (s.mean, s.median, s.minimum, s.maximum, s.stdev, s.p90)
    return [
        *(f"{ms:.4f}" for ms in times),
        f"{100 * m.standard_error:.2f}",
        f"{reference.summary.median / s.median:.3f}" if reference else "-",
        f"{m.attn_tflops:.1f}",
        f"{m.matmul_tflops:.1f}",
        f"{mhz:.0f}" if mhz else "-",
    ]


def wave_warning(row: Row) -> str:
    """About a measured row of one of our kernels (bench/row.py): what its last wave wastes;
    empty if that is little, or not known. With a causal mask blocks differ in length, which fills
    the end of the launch: no warning then."""
    sms, problem, config = gpu_sms(row.environment), row.problem, config_of(row)
    if not sms or problem.causal or config is None:
        return ""
    blocks = n_blocks(config, problem.batch, problem.n_heads, problem.seqlen_q)
    return plan(blocks, sms, row.blocks_per_sm or 1).warning()


CSV_COLUMNS = (
    "status", "provider", "kernel", "label", "symbol", "dtype", "d_head", "seq_len", "batch",
    "n_heads", "seed", "n", "mean_ms", "median_ms", "min_ms", "max_ms", "stdev_ms", "p50_ms",
    "p90_ms", "p99_ms", "rsd", "standard_error", "outliers", "throttled", "relative",
    "attn_tflops", "matmul_tflops", "effective_sm_mhz", "loaded_sm_mhz", "sm_mhz", "watts",
    "joules", "memory_bytes", "registers", "error",
)  # fmt: skip


def render_csv(problems: Sequence[ProblemResult]) -> str:
    """One line for every kernel and problem. Unknown values are empty."""
    return csv_text.render(flat(problems), CSV_COLUMNS)


def render_json(problems: Sequence[ProblemResult], environment: object) -> str:
    return json.dumps({"environment": environment, "rows": flat(problems)}, indent=1) + "\n"


def flat(problems: Sequence[ProblemResult]) -> list[dict[str, object]]:
    """Every kernel and problem as one dictionary of plain values."""
    found: list[dict[str, object]] = []
    for problem in problems:
        found += [_identity(m.row) | _values(m, problem.reference) for m in problem.ranked]
        found += [_identity(row) for row in problem.others]
    return found


def _identity(row: Row) -> dict[str, object]:
    names = (
        "status",
        "provider",
        "kernel",
        "label",
        "symbol",
        "registers",
        "memory_bytes",
        "error",
    )
    return {name: getattr(row, name) for name in names} | row.shape


_TIMES = ("mean", "median", "stdev", "p50", "p90", "p99")


def _values(m: Measurement, reference: Measurement | None) -> dict[str, object]:
    s = m.summary
    clocks = m.row.clocks
    joules = m.row.joules
    return {
        "n": s.n,
        **{f"{name}_ms": round(getattr(s, name), 6) for name in _TIMES},
        "min_ms": s.minimum,
        "max_ms": s.maximum,
        "rsd": round(s.rsd, 6),
        "standard_error": round(m.standard_error, 6) if len(m.bursts) > 1 else None,
        "outliers": s.outliers,
        "throttled": sum(len(row.throttled) for row in m.rows),
        "relative": round(reference.summary.median / s.median, 4) if reference else None,
        "attn_tflops": round(m.attn_tflops, 2),
        "matmul_tflops": round(m.matmul_tflops, 2),
        "effective_sm_mhz": m.row.effective_sm_mhz,
        "loaded_sm_mhz": m.row.loaded_sm_mhz,
        "sm_mhz": clocks.get("sm_mhz"),
        "watts": clocks.get("watts"),
        "joules": round(statistics.fmean(joules), 6) if joules else None,
        "samples_ms": [ms for burst in m.bursts for ms in burst],
    }
