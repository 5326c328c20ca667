"""pt_bench: the command line around a sweep. tools/benchmark/pt_bench.py is its entry."""

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from flash_helpers.base.outputs import check_outputs, write_outputs
from flash_helpers.base.tool import (
    EXIT_FAILED,
    EXIT_NO_DATA,
    EXIT_OK,
    EXIT_PARTIAL,
    guarded,
    ranked,
    tool_parser,
)

from ..arguments import number
from ..provenance import command_line
from . import arguments as args
from .ceilings import measure_ceilings
from .parallel import each
from .progress import Progress
from .providers import OURS
from .records import COMPILE_FAIL, LAUNCH_FAIL, OK, SKIPPED, TIMEOUT, WRONG
from .report import render_csv, render_json, table
from .results import by_problem
from .row import Row
from .session import CUDA_BACKEND, announce, cases_of, with_session
from .store import ResultStore
from .supervisor import Measurer
from .sweep import Case, Sweep

DESCRIPTION = """Time kernels and the references side by side on one GPU, with CUDA events.

    KERNELS=tune pt_bench.py --seq_lens=1024,4096 --d_heads=128
    pt_bench.py --kernels tune --dtypes fp16,bf16 --num_repeats 20 --out results.jsonl
    pt_bench.py --kernels tune --dtypes fp16,bf16 --num_repeats 20 --out results.jsonl --resume

Every output is checked before and after it is timed. Kernels and references take turns in random
order, in a process of their own: a kernel that crashes or hangs costs its row. Exit codes: 0 ok,
1 a result was wrong, 2 usage, 3 some rows failed, 4 no data, 130 interrupted (--resume goes on).
"""


def make_parser() -> argparse.ArgumentParser:
    parser = tool_parser("pt_bench.py", DESCRIPTION)
    args.add_problem_arguments(parser, [512, 1024, 2048, 4096])
    args.add_sampling_arguments(parser)
    add = parser.add_argument
    add(
        "--providers",
        type=args.provider_list,
        default=["ours", "fa2", "fa3", "fa4", "cudnn"],
        help="of ours, fa2, fa3, fa4, cudnn, flex; the first reference is the yardstick",
    )
    add(
        "--group",
        type=number(0, 10_000, int),
        default=12,
        metavar="N",
        help="our kernels that take turns with each other and the references; 0: all (default 12)",
    )
    args.add_store_arguments(parser)
    args.add_ray_arguments(parser)
    add("--top", type=number(0, 10_000, int), default=0,
        help="print the fastest N of each problem only")  # fmt: skip
    add("--csv", type=Path, help="write figures of every row here")
    add("--json", type=Path, help="write figures and samples of every row here")
    return parser


def main(argv: Sequence[str] | None = None, backend: str = CUDA_BACKEND) -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    args.check_store_arguments(parser, options)
    try:
        cases, policy = cases_of(options, options.providers), args.policy_of(options)
    except ValueError as error:
        parser.error(str(error))
    check_outputs({"--out": options.out, "--csv": options.csv, "--json": options.json})

    def measure(store: ResultStore, supervisor: Measurer) -> int:
        sweep = Sweep(
            store, supervisor, policy, command_line(), options.group,
            retry_failed=options.retry_failed,
        )  # fmt: skip
        announce(store, sweep)
        return _run(sweep, cases, options)

    return with_session("pt_bench", options, backend, measure)


def _run(sweep: Sweep, cases: Sequence[Case], options: argparse.Namespace) -> int:
    rows: list[Row] = []
    ceilings = [] if options.no_ceilings else measure_ceilings(sweep, options.dtypes, options.seed)
    with Progress(sum(sweep.n_rows(case) for case in cases), "pt_bench") as progress:

        def measured(case: Case) -> list[Row]:
            found = []
            for row in sweep.run(case):
                progress.advance(f"{row.problem.seqlen_q} {row.kernel}")
                found.append(row)
            return found

        for _, found in each(cases, measured, sweep.supervisor.n_workers):
            rows += found
            for result in by_problem(found):
                progress.print(f"\n{table(result, options.top)}")
    unwritten = _write(sweep, rows, options)
    failed = any(row.status != OK for row in ceilings)
    code = exit_code(rows) or (EXIT_PARTIAL if failed else EXIT_OK)
    return ranked(code, unwritten)


def _write(sweep: Sweep, rows: Sequence[Row], options: argparse.Namespace) -> list[str]:
    """What could not be written, after saying so."""
    results = by_problem(rows)
    files: dict[Path, Callable[[], str | bytes]] = {}
    if options.csv:
        files[options.csv] = lambda: render_csv(results)
    if options.json:
        where = sweep.environment | {"command": sweep.command}
        files[options.json] = lambda: render_json(results, where)
    problems = write_outputs(files)
    for problem in problems:
        print(f"error: {problem}; every row is in {sweep.store.path}", file=sys.stderr)
    return problems


def exit_code(rows: Sequence[Row], named: Sequence[str] = ()) -> int:
    """A wrong result outranks a missing one. References that are not here are no failure, but for
    those in `named`."""
    statuses = {row.status for row in rows}
    if WRONG in statuses:
        return EXIT_FAILED
    asked = {row.provider for row in rows}
    measured = {row.provider for row in rows if row.status == OK}
    if (OURS in asked and OURS not in measured) or not measured:
        return EXIT_NO_DATA
    absent = any(row.status == SKIPPED and row.provider in named for row in rows)
    failed = statuses & {LAUNCH_FAIL, TIMEOUT, COMPILE_FAIL}
    return EXIT_PARTIAL if failed or absent else EXIT_OK


command = functools.partial(guarded, "pt_bench.py", main)
