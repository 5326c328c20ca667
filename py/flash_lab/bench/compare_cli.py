"""compare: the command line. tools/benchmark/compare.py is its entry."""

import argparse
import functools
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from flash_helpers.base.text_table import text_table
from flash_helpers.base.tool import EXIT_FAILED, EXIT_OK, EXIT_USAGE, guarded, tool_parser

from ..arguments import number
from .comparison import (
    AMBIGUOUS,
    SAME,
    Comparison,
    Line,
    Rules,
    compare_runs,
    describe,
    halves,
    noise_floor,
)
from .runs import RunError, load_run

DESCRIPTION = """Compare two runs of pt_bench.py, row by row.

    compare.py BASE.jsonl NEW.jsonl --fail-over 2.5
    compare.py --aa RUN.jsonl              # the noise within one run
    compare.py --aa RUN.jsonl AGAIN.jsonl  # and from run to run: the floor for --fail-over

A row is slower or faster where the confidence interval of the ratio says so (Mann-Whitney on
bursts; 0.2 % false alarms for the whole table), the same where the interval is within 1 %, else
ambiguous. On a card at its power limit, to find 5 % takes 48 bursts of each kernel, which is
--num_repeats 96 for pt_bench.py.

Only our kernels can fail. Exit codes: 0 no regression, 1 a kernel is clearly slower and by more
than --fail-over, or gives no right result any more, 2 usage or unusable input.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = tool_parser("compare.py", DESCRIPTION)
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="BASE NEW: stores of pt_bench.py")
    add("--fail-over", type=number(0, 1000), default=2.5, metavar="PCT",
        help="how much slower is a regression (default 2.5)")  # fmt: skip
    add("--same-within", type=number(0, 100), default=1.0, metavar="PCT")
    add(
        "--anchored",
        action="store_true",
        help="relative to the first reference: a card that runs slower today is no regression",
    )
    add("--aa", action="store_true", help="print the noise floor: the runs are of the same build")
    add("--partial", action="store_true", help="NEW need not have every row of BASE")
    add("--any_gpu", action="store_true", help="the runs may be of different GPUs")
    add("--all", action="store_true", help="print rows that are the same or ambiguous, too")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    if len(options.runs) > 2 or (len(options.runs) == 1 and not options.aa):
        parser.error("expected two runs, BASE and NEW (or with --aa one or two)")
    rules = Rules(
        fail_over=options.fail_over / 100, same_within=options.same_within / 100,
        anchored=options.anchored,
    )  # fmt: skip
    try:
        runs = [load_run(path) for path in options.runs]
        for note in (note for run in runs for note in run.notes):
            print(f"note: {note}", file=sys.stderr)
        base, new = halves(runs[0]) if len(runs) == 1 else (runs[0], runs[1])
        comparison = compare_runs(base, new, rules, any_gpu=options.any_gpu)
        if options.aa:
            print(render_floor(comparison, len(runs)))
            return EXIT_OK
        print(render(comparison, rules, everything=options.all))
        if comparison.missing and not options.partial:
            raise RunError(
                f"{new.path} lacks {len(comparison.missing)} rows of the base, the first "
                f"{comparison.missing[0][1]} at {describe(comparison.missing[0])}: measure them, "
                "or add --partial"
            )
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    return EXIT_FAILED if comparison.regressions() or comparison.broken else EXIT_OK


def render(comparison: Comparison, rules: Rules, *, everything: bool) -> str:
    columns = ["kernel", "problem", "base ms", "new ms", "change %", "sure within", "is"]
    ordered = sorted(comparison.lines, key=lambda line: -line.shift.estimate)
    shown = [x for x in ordered if everything or x.verdict not in (SAME, AMBIGUOUS)]
    words = ("kernel", "problem", "is")
    lines = [text_table(columns, map(_cells, shown), words)] if shown else []
    lines += [
        f"{row.status}: {row.kernel} at seq {row.problem.seqlen_q}: {row.error}"
        for row in comparison.broken
    ]
    counts = Counter(line.verdict for line in comparison.lines)
    summary = ", ".join(f"{counts[name]} {name}" for name in ("same", "faster", "slower"))
    n = len(comparison.regressions())
    lines.append(
        f"{len(comparison.lines)} rows: {summary}, {counts[AMBIGUOUS]} ambiguous (more samples "
        f"would tell); {n} regression(s) past {100 * rules.fail_over:g} %, "
        f"{len(comparison.broken)} broken, {comparison.n_added} new"
    )
    return "\n".join(lines)


def _cells(line: Line) -> list[str]:
    low, high = 100 * (line.shift.low - 1), 100 * (line.shift.high - 1)
    return [
        line.label,
        describe(line.key),
        f"{line.base_ms:.4f}",
        f"{line.new_ms:.4f}",
        f"{100 * (line.shift.estimate - 1):+.2f}",
        f"{low:+.2f}..{high:+.2f}",
        f"{line.verdict}: REGRESSION" if line.is_regression else line.verdict,
    ]


def render_floor(comparison: Comparison, n_runs: int) -> str:
    """One line for every sequence length, and one for all."""
    groups: dict[str, list[Line]] = {}
    for line in comparison.lines:
        groups.setdefault(describe(line.key), []).append(line)
    groups["all"] = comparison.lines
    what = "two runs" if n_runs == 2 else "the halves of one run (no drift from run to run)"
    lines = [f"noise floor of {what}, in % of the time:"]
    for name, found in groups.items():
        floor = noise_floor(found)
        lines.append(
            f"  {name}: {floor.n} rows, together {100 * floor.common:+.2f}, half below "
            f"{100 * floor.median:.2f}, 95 % below {100 * floor.p95:.2f}, worst "
            f"{100 * floor.worst:.2f}; {floor.n_regressions} would be called a regression"
        )
    return "\n".join(lines)


command = functools.partial(guarded, "compare.py", main)
