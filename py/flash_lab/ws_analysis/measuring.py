"""`--mode benchmark`, and the measurement that `--mode analysis` shares with it."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flash_helpers.base import csv_text
from flash_helpers.base.dtypes import DType
from flash_helpers.base.outputs import OutputError, make_folder, write_output
from flash_helpers.base.tool import EXIT_FAILED, EXIT_NO_DATA, EXIT_OK, EXIT_PARTIAL, EXIT_USAGE

from ..bench import charts
from ..bench.ceilings import measure_ceilings
from ..bench.progress import Progress
from ..bench.providers import CEILING
from ..bench.pt_cli import exit_code
from ..bench.records import OK
from ..bench.results import Measurement, ProblemResult, by_problem
from ..bench.row import Json, Row
from ..bench.runs import RunError, rows_of
from ..bench.session import announce, with_session
from ..bench.store import ResultStore
from ..bench.supervisor import Measurer
from ..bench.sweep import Case, Job, Sweep
from ..provenance import command_line
from . import text
from .options import problems
from .words import Words, words

BACKEND = "flash_lab.ws_analysis.backend:WsBackend"


@dataclass(frozen=True)
class Measured:
    """All rows of the run, those of ceilings too; `environment` says where."""

    rows: list[Row]
    problems: list[ProblemResult]
    environment: Json


def benchmark(options: argparse.Namespace, backend: str = BACKEND) -> int:
    return measure(options, backend, _show, with_ceilings=False)


def measure(
    options: argparse.Namespace, backend: str,
    show: Callable[[Measured, argparse.Namespace], int], *, with_ceilings: bool,
) -> int:  # fmt: skip
    """Times every provider on every length, in turns, and shows what came out. Returns the worse
    of what the rows and `show` say."""
    if options.rows:
        found = recorded(options)
        return EXIT_USAGE if found is None else _present(found, options, show)
    jobs = tuple(Job(name, name) for name in options.provider)

    def run(store: ResultStore, supervisor: Measurer) -> int:
        sweep = Sweep(
            store, supervisor, options.policy, command_line(), 0, retry_failed=options.retry_failed
        )
        announce(store, sweep)
        ceilings = measure_ceilings(sweep, [DType.FP16], options.seed) if with_ceilings else []
        cases = [Case(problem, options.seed, (), jobs) for problem in problems(options)]
        rows: list[Row] = []
        with Progress(sum(map(sweep.n_rows, cases)), "WS analysis") as progress:
            for case in cases:
                for row in sweep.run(case):
                    progress.advance(f"{row.problem.seqlen_q} {row.kernel}")
                    rows.append(row)
        failed = any(row.status != OK for row in ceilings)
        found = Measured([*ceilings, *rows], by_problem(rows), sweep.environment)
        return _present(found, options, show) or (EXIT_PARTIAL if failed else EXIT_OK)

    return with_session("ws-analysis", options, backend, run)


def recorded(options: argparse.Namespace) -> Measured | None:
    """What the store of --rows holds of its last shape, after saying so; None: it holds nothing.
    The options then say what that shape was."""
    try:
        rows, notes = rows_of(options.rows)
        attention = [row for row in rows if row.provider != CEILING]
        if not attention:
            raise RunError(f"cannot use {options.rows}: no row in it is about attention")
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return None
    wanted = _shape(attention[-1])
    kept = [row for row in rows if row.provider == CEILING or _shape(row) == wanted]
    if len(kept) < len(rows):
        notes.append(f"{len(rows) - len(kept)} rows of other shapes are left out")
    print("\n".join([f"store: {options.rows}", *(f"note: {note}" for note in notes)]))
    problems = by_problem(kept)
    options.n_ctx = [problem.seq_len for problem in problems]
    options.batch, options.heads, options.head_dim, options.causal = wanted
    policies = [row.policy for row in kept if row.status == OK and row.policy]
    options.noncu = bool(policies) and not policies[-1].get("cold_l2", True)
    return Measured(kept, problems, kept[-1].environment)


def _shape(row: Row) -> tuple[object, ...]:
    p = row.problem
    return p.batch, p.n_heads, p.d_head, p.causal


def _present(
    found: Measured, options: argparse.Namespace,
    show: Callable[[Measured, argparse.Namespace], int],
) -> int:  # fmt: skip
    code = exit_code([row for row in found.rows if row.provider != CEILING], options.named)
    if code == EXIT_NO_DATA:
        print("no data: no provider could be measured")
        print("\n".join(text.not_measured(found.problems)))
        return code
    shown = show(found, options)
    return shown if shown == EXIT_USAGE and code != EXIT_FAILED else code or shown


def _show(found: Measured, options: argparse.Namespace) -> int:
    say = words(options.lang)
    print_configurations(found.problems, say)
    print(text.section(say("performance"), text.performance_table(found.problems, say)))
    print(explanation(options))
    print("\n".join(text.not_measured(found.problems)))
    files = {"benchmark.csv": lambda: render_csv(found.problems).encode()}
    shape = f"batch {options.batch}, {options.heads} heads, d {options.head_dim}"
    return write(options.results, files | plots(found.problems, shape), say)


def print_configurations(problems: Sequence[ProblemResult], say: Words) -> None:
    for m in text.measured(problems):
        if m.row.parameters:
            print(f"\n{text.configuration_block(m, say)}")


def explanation(options: argparse.Namespace) -> str:
    cache = "warm L2 cache" if options.noncu else "cold L2 cache (overwritten before each sample)"
    return (
        f"Times: medians between CUDA events, providers in turns, {cache}. TFLOPS: the two matmuls "
        "alone (half of them when causal). GB/s: Q, K and V read once and O written once, over the "
        "time. MB: inputs, output and what a call allocates. noise %: standard error of the mean, "
        "a burst counting as one observation."
    )


Files = dict[str, Callable[[], bytes]]


def plots(problems: Sequence[ProblemResult], shape: str) -> Files:
    """Over N_CTX. Labels are English: not every matplotlib has Chinese letters."""
    over = charts.over_lengths
    return {
        "tflops.png": lambda: charts.throughput(problems, f"Throughput, {shape}"),
        "time.png": lambda: over(
            problems, f"Time of a call, {shape}", lambda m: m.summary.median, "ms", "upper left",
            log=True,
        ),
        "bandwidth.png": lambda: over(
            problems, f"Bytes of Q, K, V and O over the time, {shape}", text.gb_per_s, "GB/s",
            "upper right",
        ),
    }  # fmt: skip


def write(folder: Path, files: Files, say: Words) -> int:
    """Writes the files and lists them. Without matplotlib the plots are missing, which is said."""
    lines, code = [], EXIT_OK
    try:
        make_folder(folder)
        for name, make in files.items():
            try:
                data = make()
            except ImportError as error:
                lines.append(f"{name} is not drawn: {error} (pip install matplotlib)")
                code = EXIT_PARTIAL
                continue
            write_output(folder / name, data)
            lines.append(f"{folder / name}: {len(data)} bytes")
    except OutputError as error:
        lines.append(f"error: {error}; the tables above and the store have every figure")
        code = EXIT_USAGE
    print(text.section(say("plots"), *lines))
    return code


COLUMNS = (
    "provider", "n_ctx", "batch", "heads", "head_dim", "causal", "status", "time_ms", "tflops",
    "gb_per_s", "memory_mb", "standard_error", "configuration", "error",
)  # fmt: skip


def render_csv(problems: Sequence[ProblemResult]) -> str:
    """One line for every provider and length. Unknown values are empty."""
    rows: list[dict[str, object]] = []
    for problem in problems:
        rows += [_identity(m.row) | _figures(m) for m in problem.ranked]
        rows += [_identity(row) | {"error": row.error} for row in problem.others]
    return csv_text.render(rows, COLUMNS)


def _identity(row: Row) -> dict[str, object]:
    p = row.problem
    return {
        "provider": row.provider, "status": row.status, "n_ctx": p.seqlen_q, "batch": p.batch,
        "heads": p.n_heads, "head_dim": p.d_head, "causal": p.causal,
    }  # fmt: skip


def _figures(m: Measurement) -> dict[str, object]:
    n_bytes = m.row.memory_bytes
    return {
        "time_ms": round(m.summary.median, 6),
        "tflops": round(m.matmul_tflops, 4),
        "gb_per_s": round(text.gb_per_s(m), 4),
        "memory_mb": "" if n_bytes is None else n_bytes / 1e6,
        "standard_error": round(m.standard_error, 6) if len(m.bursts) > 1 else "",
        "configuration": " ".join(f"{name}={value}" for name, value in text.parameters(m)),
    }
