"""Tables of results."""

from __future__ import annotations

from prettytable import PrettyTable

from .stats import tflops
from .sweep import Result, Row

COLUMNS = (
    "kernel", "median ms", "mean", "min", "max", "stdev", "noise %", "relative",
    "Attn TFLOP/s", "matmul TFLOP/s",
)  # fmt: skip


def table(result: Result, top: int = 0) -> str:
    """`relative`: how many times as fast as the first reference (FlashAttention-2). `Attn TFLOP/s`
    counts the softmax too, as the seeds do; peers are compared on the two matmuls alone."""
    ranked = result.ranked()
    lines = [str(result.workload), _clock_line(result)]
    if ranked:
        lines.append(_ranking(result, ranked, top))
    lines += [f"{row.status}: {row.name}: {row.note}" for row in result.rows if row.status != "ok"]
    lines += [f"note: {row.name}: {row.note}" for row in ranked if row.note]
    return "\n".join(line for line in lines if line)


def _ranking(result: Result, ranked: list[Row], top: int) -> str:
    reference = next((row for row in result.rows if not row.is_ours and row.status == "ok"), None)
    base = reference.summary.median if reference else None
    ours = [row for row in ranked if row.is_ours]
    shown = set(map(id, ours[:top] if top else ours))
    output = PrettyTable(list(COLUMNS))
    output.align = "r"
    output.align["kernel"] = "l"
    for row in ranked:
        if row.is_ours and id(row) not in shown:
            continue
        s = row.summary
        output.add_row(
            [
                row.name,
                *(f"{x:.4f}" for x in (s.median, s.mean, s.minimum, s.maximum, s.stdev)),
                f"{100 * s.noise:.2f}",
                f"{base / s.median:.3f}" if base else "-",
                f"{tflops(result.workload.attn_flop(), s.median):.1f}",
                f"{result.tflops(row):.1f}",
            ]
        )
    text: str = output.get_string()
    hidden = len(ours) - len(shown)
    return f"{text}\n({hidden} slower kernels not shown)" if hidden else text


def _clock_line(result: Result) -> str:
    if not result.clocks:
        return f"clocks: {result.clock_note or 'not sampled'}"
    return f"SM {result.clocks['sm_mhz']:.0f} MHz, {result.clocks['watts']:.0f} W (medians)"
