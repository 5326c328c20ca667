"""pt_bench: the command line around a sweep. tools/benchmark/pt_bench.py is its entry."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..paths import repository_root
from ..test.utils import BATCH_SIZE_FOR_SEQ_LEN, BENCHMARK_N_HEADS
from ..workload import Workload
from . import arguments as args
from .progress import Progress
from .provenance import command_line
from .providers import OURS
from .records import COMPILE_FAIL, LAUNCH_FAIL, OK, TIMEOUT, WRONG, Record
from .report import render_csv, render_json, table
from .results import by_problem
from .store import ResultStore, StoreError, open_store
from .supervisor import Supervisor, WorkerStartError
from .sweep import Problem, Sweep, make_problem

CUDA_BACKEND = "flash_helpers.bench.cuda_backend:CudaBackend"

DESCRIPTION = """Time kernels and the references side by side on one GPU, with CUDA events.

    KERNELS=tune pt_bench.py --seq_lens=1024,4096 --d_heads=128
    pt_bench.py --kernels tune --dtypes fp16,bf16 --num_repeats 20 --out results.jsonl
    pt_bench.py --kernels tune --dtypes fp16,bf16 --num_repeats 20 --out results.jsonl --resume

Every output is checked before and after it is timed. Kernels and references take turns in random
order, in a process of their own: a kernel that crashes or hangs costs its row. Exit codes: 0 ok,
1 a result was wrong, 2 usage, 3 some rows failed, 4 no data, 130 interrupted (--resume goes on).
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pt_bench.py", description=DESCRIPTION, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
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
        type=args.number(0, 10_000, int),
        default=12,
        metavar="N",
        help="our kernels that take turns with each other and the references; 0: all (default 12)",
    )
    add("--out", type=Path, help="append rows to this JSON Lines store as they are made")
    add("--resume", action="store_true", help="continue --out: skip rows of this environment")
    add("--retry_failed", action="store_true", help="with --resume: repeat what is not ok")
    add("--top", type=args.number(0, 10_000, int), default=0,
        help="print the fastest N of each problem only")  # fmt: skip
    add("--csv", type=Path, help="write figures of every row here")
    add("--json", type=Path, help="write figures and samples of every row here")
    return parser


def main(argv: Sequence[str] | None = None, backend: str = CUDA_BACKEND) -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    if (options.resume or options.retry_failed) and not options.out:
        parser.error("--resume and --retry_failed need --out")
    if options.graph and not options.noncu:
        parser.error("--graph needs --noncu: a graph for short kernels runs from a warm L2 cache")
    try:
        problems, policy = _problems(options), args.policy_of(options)
    except ValueError as error:
        parser.error(str(error))
    path = options.out or _default_store()
    try:
        with (
            open_store(path, resume=options.resume) as store,
            Supervisor(backend, options.time_limit, device=options.device) as supervisor,
        ):
            sweep = Sweep(
                store, supervisor, policy, command_line(), options.group,
                retry_failed=options.retry_failed,
            )  # fmt: skip
            _announce(store, sweep)
            return _run(sweep, problems, options)
    except StoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return args.EXIT_USAGE
    except WorkerStartError as error:
        print(f"no data: {error}", file=sys.stderr)
        return args.EXIT_NO_DATA
    except KeyboardInterrupt:
        print(f"\ninterrupted: the finished rows are in {path}; --out {path} --resume goes on",
              file=sys.stderr)  # fmt: skip
        return args.EXIT_INTERRUPTED


def _problems(options: argparse.Namespace) -> list[Problem]:
    configs = args.configs_of(options)
    heads = BENCHMARK_N_HEADS
    return [
        make_problem(
            Workload(
                BATCH_SIZE_FOR_SEQ_LEN[seq_len], heads, heads, seq_len, d_head, dtype, options.seed
            ),
            configs,
            options.providers,
        )
        for d_head in options.d_heads
        for seq_len in options.seq_lens
        for dtype in options.dtypes
    ]


def _default_store() -> Path:
    """Every measurement is kept: where nothing is named, in a new file under build/."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    root = repository_root() or Path.cwd()
    return root / "build" / "bench" / f"pt_bench-{stamp}-{os.getpid()}.jsonl"


def _announce(store: ResultStore, sweep: Sweep) -> None:
    print(f"store: {store.path}; seed and order are in every row")
    known = {row.get("environment_fingerprint") for row in store.contents.rows}
    others = known - {sweep.environment_fingerprint}
    if others:
        print(f"note: rows of {len(others)} other environment(s) are kept and not used")
    for note in store.notes:
        print(f"note: {note}", file=sys.stderr)
    print("\n".join(f"{name}: {value}" for name, value in sweep.environment.items()), flush=True)


def _run(sweep: Sweep, problems: Sequence[Problem], options: argparse.Namespace) -> int:
    rows: list[Record] = []
    with Progress(sum(sweep.n_rows(problem) for problem in problems), "pt_bench") as progress:
        for problem in problems:
            found = []
            for row in sweep.run(problem):
                progress.advance(f"{row['shape']['seq_len']} {row['kernel']}")
                found.append(row)
            rows += found
            for result in by_problem(found):
                progress.print(f"\n{table(result, options.top)}")
    results = by_problem(rows)
    if options.csv:
        options.csv.write_text(render_csv(results))
    if options.json:
        where = sweep.environment | {"command": sweep.command}
        options.json.write_text(render_json(results, where))
    return exit_code(rows)


def exit_code(rows: Sequence[Record]) -> int:
    """A wrong result outranks a missing one. References that are not here are no failure."""
    statuses = {row["status"] for row in rows}
    if WRONG in statuses:
        return args.EXIT_FAILED
    asked = {row["provider"] for row in rows}
    measured = {row["provider"] for row in rows if row["status"] == OK}
    if (OURS in asked and OURS not in measured) or not measured:
        return args.EXIT_NO_DATA
    return args.EXIT_PARTIAL if statuses & {LAUNCH_FAIL, TIMEOUT, COMPILE_FAIL} else 0
