"""autotune: the command line. tools/benchmark/autotune.py is its entry."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from flash_helpers.base.cache import CacheLockTimeout
from flash_helpers.base.dtypes import DType
from flash_helpers.base.outputs import OutputError, check_outputs
from flash_helpers.base.timing import Policy
from flash_helpers.base.tool import (
    EXIT_FAILED,
    EXIT_NO_DATA,
    EXIT_OK,
    EXIT_PARTIAL,
    EXIT_USAGE,
    guarded,
    tool_parser,
)
from flash_helpers.kernels.sets import DEFAULT_KERNELS, KERNELS_VARIABLE

from ..arguments import number
from ..provenance import command_line
from . import arguments as args
from .building import Build, NoSourcesError
from .ceilings import measure_ceilings
from .objective import TIME, Objective, ObjectiveError
from .parallel import each
from .progress import Progress
from .providers import OURS
from .records import OK, SKIPPED, WRONG
from .report import wave_warning
from .row import Row
from .session import CUDA_BACKEND, announce, cases_of, default_store, with_session
from .store import ResultStore
from .supervisor import Measurer, Supervisor
from .sweep import Case, Sweep
from .tuning import Stage, Winner, costs, prune, table_entries, tune_case

DESCRIPTION = """Find the best kernel for every dtype, head size and sequence length of this GPU.

    KERNELS=tune autotune.py                      # builds them, measures, writes the user's table
    autotune.py --kernels tune --no_build --out tune.jsonl --resume --table tuning.json
    autotune.py --kernels tune --no_build --objective time=2,energy=1 --ray local

Three passes: all kernels briefly (from when the first are built, while the others compile), the
better ones longer, the leaders in turns with each other.
A winner is one that beats every leader in a Mann-Whitney test; others are named as ties.
`flash_attention.tuned_config` reads the table. Exit codes: 0 ok, 1 a kernel was wrong (it has no
rank), 2 usage or no build, 3 a kernel failed or a problem has no winner, 4 no data, 130
interrupted.
"""


# How often every kernel of a pass runs for half a second, where energy is an objective.
_ENERGY_ROUNDS = {"coarse": 1, "fine": 2, "final": 8}


def make_parser() -> argparse.ArgumentParser:
    parser = tool_parser("autotune.py", DESCRIPTION)
    args.add_problem_arguments(parser, [512, 1024, 2048, 4096, 8192, 16384])
    parser.set_defaults(dtypes=[DType.FP16, DType.BF16])
    args.add_store_arguments(parser)
    args.add_ray_arguments(parser)
    add = parser.add_argument
    count = number(1, 100_000, int)
    add("--coarse", type=count, default=4, metavar="N", help="samples of every kernel (default 4)")
    add("--fine", type=count, default=12, metavar="N", help="of the better ones (default 12)")
    add("--final", type=count, default=48, metavar="N", help="of the leaders (default 48)")
    add("--keep_within", type=number(0, 1000), default=10.0, metavar="P",
        help="of the fastest go on to the second pass (default 10)")  # fmt: skip
    add("--leaders", type=number(2, 100, int), default=6, metavar="N",
        help="in the last pass, of those within 3 %% of the fastest (default 6)")  # fmt: skip
    add("--objective", type=Objective.parse, default=Objective(), metavar="NAME=WEIGHT,...",
        help="what to minimize: time (default), energy, memory, or some with weights, as in "
        "time=2,energy=1")  # fmt: skip
    add("--noncu", action="store_true", help="do not empty the L2 cache before each sample")
    add("--no_build", action="store_true", help="take the build as it is")
    add("--parts", type=count, default=4, metavar="N",
        help="begin to measure when 1/N of the kernels is built (default 4)")  # fmt: skip
    add("--table", type=Path, help="write winners here; default: the user's cache directory")
    add("--no_table", action="store_true", help="write no table")
    return parser


def main(argv: Sequence[str] | None = None, backend: str = CUDA_BACKEND) -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    args.check_store_arguments(parser, options)
    log = default_store("autotune-build").with_suffix(".log")
    try:
        cases = cases_of(options, [OURS])
        build = None if options.no_build else Build(kernels_word(options), options.parts, log)
    except ValueError as error:
        parser.error(str(error))
    if options.ray and not options.no_build:
        parser.error("--ray needs --no_build: every host must have the same build beforehand")
    options.table = table_path(options)
    check_outputs({"--out": options.out, "--table": options.table})

    def measure(store: ResultStore, supervisor: Measurer) -> int:
        if build is not None:
            _tune_parts(build, store, cases, options, backend)
            if problem := build.finish():
                print(f"error: {problem}", file=sys.stderr)
                return EXIT_USAGE
        try:
            return _tune(store, supervisor, cases, options)
        except ObjectiveError as error:
            print(f"no data: --objective {options.objective}: {error}", file=sys.stderr)
            return EXIT_NO_DATA

    try:
        with build or nullcontext():
            return with_session("autotune", options, backend, measure)
    except NoSourcesError as error:
        parser.error(str(error))


def table_path(options: argparse.Namespace) -> Path | None:
    """Where the winners go; None with --no_table. Raises UnsafeCacheError, and OutputError for
    what is no file: the table is read before it is written."""
    if options.no_table:
        return None
    from flash_attention.tuning import user_table

    path: Path = options.table or user_table()
    if path.exists() and not path.is_file():
        raise OutputError(f"--table: cannot write {path}: it is no regular file")
    return path


def kernels_word(options: argparse.Namespace) -> str:
    """What to build. Raises ValueError."""
    if options.kernels and len(options.kernels) > 1:
        raise ValueError("--kernels more than once needs --no_build: a build has one KERNELS word")
    return str((options.kernels or [os.environ.get(KERNELS_VARIABLE, DEFAULT_KERNELS)])[0])


def _tune_parts(
    build: Build, store: ResultStore, cases: Sequence[Case], options: argparse.Namespace,
    backend: str,
) -> None:  # fmt: skip
    """The first pass over the kernels that are there, while the others compile. Their rows stand in
    the store when the whole is tuned."""
    for part in build.parts():
        n = 0
        with Supervisor(
            backend, options.time_limit, device=options.device, library=part.library
        ) as supervisor:
            sweep = _stages(store, supervisor, options)[0].sweep
            arch = str(sweep.environment.get("compute_capability", ""))
            for case in cases:
                pruned = prune(case, arch)
                ours = tuple(job for job in pruned.ours if job.kernel in part.kernels)
                n += sum(1 for _ in sweep.run(replace(pruned, ours=ours, skipped=())))
        print(f"{n} rows of {len(part.kernels)} kernels, while the others compile", flush=True)


def _stages(store: ResultStore, supervisor: Measurer, options: argparse.Namespace) -> list[Stage]:
    def sweep(name: str, repeats: int, group: int) -> Sweep:
        rounds = _ENERGY_ROUNDS[name] if options.objective.needs_energy else 0
        policy = Policy(warmups=1, repeats=repeats, cold_l2=not options.noncu, energy_rounds=rounds)
        return Sweep(
            store, supervisor, policy, command_line(), group, name,
            retry_failed=options.retry_failed,
        )  # fmt: skip

    close = 0.03
    return [
        Stage(sweep("coarse", options.coarse, 12), options.keep_within / 100, 10_000),
        Stage(sweep("fine", options.fine, 0), close, options.leaders),
        Stage(sweep("final", options.final, 0), close, options.leaders),
    ]


def _tune(
    store: ResultStore, supervisor: Measurer, cases: Sequence[Case],
    options: argparse.Namespace,
) -> int:  # fmt: skip
    stages = _stages(store, supervisor, options)
    announce(store, stages[0].sweep)
    arch = str(stages[0].sweep.environment.get("compute_capability", ""))
    cases = [prune(case, arch) for case in cases]
    if not options.no_ceilings:
        measure_ceilings(stages[0].sweep, options.dtypes, options.seed)
    winners: list[Winner] = []
    rows: list[Row] = []
    with Progress(sum(stages[0].sweep.n_rows(case) for case in cases), "tune") as bar:

        def on_row(row: Row) -> None:
            rows.append(row)
            if row.policy["stage"] == "coarse":
                bar.advance(f"{row.problem.seqlen_q} {row.kernel}")

        def tuned(case: Case) -> Winner | None:
            return tune_case(case, stages, on_row, options.objective)

        for case, winner in each(cases, tuned, supervisor.n_workers):
            if winner is None:
                bar.print(f"{case}: no kernel gave a right result")
            else:
                winners.append(winner)
                bar.print(describe(winner))
    for row in rows:
        if row.status not in (OK, SKIPPED):
            print(f"{row.status}: {row.kernel} at {row.problem.seqlen_q}: {row.error}")
    if not winners:
        return EXIT_NO_DATA
    statuses = {row.status for row in rows}
    unwritten = write_table(winners, options.table) if options.table else ""
    if unwritten:
        print(f"error: no table: {unwritten}; every row is in {store.path}", file=sys.stderr)
    if WRONG in statuses:
        return EXIT_FAILED
    if unwritten:
        return EXIT_USAGE
    complete = statuses <= {OK, SKIPPED} and len(winners) == len(cases)
    return EXIT_OK if complete else EXIT_PARTIAL


def describe(winner: Winner) -> str:
    """One line, one for the ties, and a warning if the last wave of blocks is nearly empty."""
    best = winner.best
    lines = [
        f"{winner.case}: {best.label}: {best.summary.median:.4f} ms, "
        f"{best.matmul_tflops:.1f} TFLOP/s (standard error {100 * best.standard_error:.2f} %)"
    ]
    if str(winner.objective) != TIME:
        found = costs(winner.objective, best)
        shown = ", ".join(f"{name} {found[name]}" for name in found if name != "objective")
        lines.append(f"  by {winner.objective}: {shown}")
    if len(winner.ranked) == 1:
        lines.append("  without a rival")
    elif winner.tied:
        lines.append(f"  not surely better than: {'; '.join(winner.tied)}")
    else:
        lines.append(f"  surely the best of {len(winner.ranked)} leaders")
    if warning := wave_warning(best.row):
        lines.append(f"  warning: {warning}")
    return "\n".join(lines)


def write_table(winners: Sequence[Winner], path: Path) -> str:
    """Why the table could not be written, or an empty string."""
    from flash_attention.tuning_table import Entry, TuningTableError, update_table

    found: list[dict[str, Any]] = table_entries(winners)
    try:
        notes = update_table(path, [Entry(**entry) for entry in found])
    except (CacheLockTimeout, TuningTableError) as error:
        return str(error)
    except OSError as error:
        return f"cannot write {path}: {error.strerror or error}"
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"{len(found)} entries written to {path}")
    return ""


command = partial(guarded, "autotune.py", main)
