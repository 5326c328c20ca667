"""What the tool prints about measurements: the seed's block of a configuration, and tables."""

import math
from collections.abc import Iterable, Sequence

from flash_helpers.base.text_table import text_table

from ..bench.results import Measurement, ProblemResult
from .words import Words

RULE = "=" * 80
# The seed's parameters in its order; a kernel's own come behind the first five.
_FIRST = ("BLOCK_M", "BLOCK_N", "NUM_BUFFERS", "NUM_MMA_WARPS", "NUM_MMA_GROUPS")
_LAST = ("num_warps", "num_stages")


def fixed(value: float, decimals: int) -> str:
    """With so many decimals as in the seed, and with more where it has less than three digits: a
    kernel of 5 us is not 0.005 ms."""
    if value and abs(value) < 1:
        decimals = max(decimals, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def measured(problems: Sequence[ProblemResult]) -> list[Measurement]:
    """The fastest of a length first."""
    return [m for problem in problems for m in problem.ranked]


def gb_per_s(m: Measurement) -> float:
    """Q, K and V read once and O written once, over the time."""
    return m.n_bytes / m.summary.median / 1e6


def configuration_block(m: Measurement, say: Words) -> str:
    """The seed's `AutoTune` block of one provider on one shape."""
    p = m.problem
    tera = p.matmul_flop() / 1e12
    title = f"{say('best configuration')} - {m.row.provider}"
    shape = f"BATCH={p.batch}, H={p.n_heads}, N_CTX={p.seqlen_q}, HEAD_DIM={p.d_head}"
    lines = [
        RULE,
        title,
        f"{say('shape')}: {shape}",
        f"{say('execution time')}: {fixed(m.summary.median, 3)} ms",
        RULE,
        f"{say('best parameters')}:",
        *(f"  {name}: {value}" for name, value in parameters(m)),
        f"  {say('theoretical flops')}: {fixed(tera, 2)} TFLOPS",
        f"  {say('achieved')}: {fixed(m.matmul_tflops, 2)} TFLOPS",
        f"  {say('bandwidth')}: {fixed(gb_per_s(m), 2)} GB/s",
    ]
    return "\n".join(lines)


def parameters(m: Measurement) -> list[tuple[str, int | str]]:
    """In the seed's order."""
    found = dict(m.row.parameters)
    first = [(name, found.pop(name)) for name in _FIRST if name in found]
    last = [(name, found.pop(name)) for name in _LAST if name in found]
    return [*first, *found.items(), *last]


def performance_table(problems: Sequence[ProblemResult], say: Words) -> str:
    columns = [
        say("provider"), "N_CTX", say("time (ms)"), "TFLOPS", say("bandwidth (GB/s)"),
        say("memory (MB)"), say("noise %"),
    ]  # fmt: skip
    rows = []
    for m in measured(problems):
        n_bytes = m.row.memory_bytes
        memory_mb = "-" if n_bytes is None else fixed(n_bytes / 1e6, 1)
        noise = f"{100 * m.standard_error:.2f}" if len(m.bursts) > 1 else "-"
        rows.append([
            m.row.provider, m.problem.seqlen_q, fixed(m.summary.median, 3),
            fixed(m.matmul_tflops, 2), fixed(gb_per_s(m), 2), memory_mb, noise,
        ])  # fmt: skip
    return table(columns, rows)


def not_measured(problems: Sequence[ProblemResult]) -> list[str]:
    """A line for everything that has no time, and for what a reader has to know of the others."""
    lines = [
        f"N_CTX={problem.seq_len}: {row.provider}: {row.status}: {row.error}"
        for problem in problems
        for row in problem.others
    ]
    labels = {m.row.provider: m.label for m in measured(problems) if m.label != m.row.provider}
    lines += [f"{provider} is {label}" for provider, label in labels.items()]
    for m in measured(problems):
        where = f"N_CTX={m.problem.seqlen_q}: {m.row.provider}"
        lines += [f"{where}: {note}" for note in filter(None, (m.row.tuned, *m.notes))]
    return lines


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The first column is text, the others are figures."""
    return text_table(columns, rows, columns[:1])


def section(title: str, *parts: str) -> str:
    return "\n".join([f"\n## {title}", *parts])
