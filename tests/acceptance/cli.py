"""acceptance: the measuring tools measured. tools/benchmark/acceptance.py is its entry, in a source
tree: what it tests is the product, so it is none of it."""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from flash_helpers.base.outputs import OutputError, append_output, check_outputs, write_output
from flash_helpers.base.paths import python_path
from flash_helpers.base.timing import Policy
from flash_helpers.base.tool import (
    EXIT_FAILED,
    EXIT_NO_DATA,
    EXIT_OK,
    EXIT_PARTIAL,
    guarded,
    ranked,
    tool_parser,
)
from flash_helpers.check.sizes import BENCHMARK_N_HEADS
from flash_helpers.kernels.names import parse_kernel_name_into_config
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.variants import has_kernel_for, launched_symbol
from flash_lab.arguments import number
from flash_lab.bench import arguments as args
from flash_lab.bench.progress import Progress
from flash_lab.bench.providers import OURS
from flash_lab.bench.records import OK
from flash_lab.bench.row import Json, Row
from flash_lab.bench.runs import RunError, drop_incomplete
from flash_lab.bench.session import CUDA_BACKEND, announce, cases_of, with_session
from flash_lab.bench.store import ResultStore, StoreError, read_store
from flash_lab.bench.supervisor import Measurer, Supervisor
from flash_lab.bench.sweep import Job, Sweep, our_job
from flash_lab.provenance import command_line

from . import gate
from .repeats import agreement_verdicts, rank_verdicts, read_ncu

DESCRIPTION = """Measure the measuring tools on this GPU, against the bars of docs/measuring.md.

    acceptance.py gate --out gate.jsonl --json gate-verdicts.jsonl
    acceptance.py repeat --out repeat.jsonl --json repeat-verdicts.jsonl
    acceptance.py agreement --out agree.jsonl --ncu_csv ncu.csv --json agree-verdicts.jsonl

gate: compare.py passes 20 of 20 pairs of runs of one build, and finds a kernel with 5 % more work
in 20 of 20. repeat: repeated sweeps rank the best kernel within 1 %. agreement: pt_bench's times
are ncu's within 5 %, in cycles. With --evaluate nothing is measured: verdicts come from the files.
Exit codes: 0 within the bar, 1 not, 2 usage, 3 a row failed, 4 no data, 130 interrupted.
"""

_NCU_BENCH = "flash_lab.bench.ncu_cli"


def make_parser() -> argparse.ArgumentParser:
    parser = tool_parser("acceptance.py", DESCRIPTION)
    kinds = parser.add_subparsers(dest="kind", required=True)
    count = number(1, 1000, int)
    for name in ("gate", "repeat", "agreement"):
        own = kinds.add_parser(name, allow_abbrev=False)
        args.add_problem_arguments(own, [2560] if name == "gate" else [1024, 4096])
        own.add_argument("--out", type=Path, required=True, help="the store, new or --resume'd")
        own.add_argument("--resume", action="store_true")
        own.add_argument("--evaluate", action="store_true", help="measure nothing: read --out")
        own.add_argument("--json", type=Path, help="append the verdicts, one a line")
        own.set_defaults(ray="", ray_workers=0, retry_failed=False, no_ceilings=True)
        kernels = {"gate": "128,64", "repeat": "tune", "agreement": "128,64"}[name]
        own.set_defaults(default_kernels=kernels)
        if name == "gate":
            own.add_argument("--rounds", type=count, default=20)
            own.add_argument("--fresh", type=count, default=5, metavar="N",
                             help="a new process every N runs (default 5)")  # fmt: skip
            own.add_argument("--n_kernels", type=count, default=3)
            own.add_argument("--batch", type=count, default=8)
            own.add_argument("--num_repeats", type=count, default=96)
        if name == "repeat":
            own.add_argument("--sweeps", type=number(2, 100, int), default=3)
            own.add_argument("--num_repeats", type=count, default=20)
        if name == "agreement":
            own.add_argument("--num_repeats", type=count, default=20)
            own.add_argument("--ncu_csv", type=Path, required=True,
                             help="of ncu_bench.py; made if it is not there")  # fmt: skip
            own.add_argument("--ncu", default="", help="the program, as for ncu_bench.py")
    return parser


def main(argv: Sequence[str] | None = None, backend: str = "") -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    options.kernels = options.kernels or [options.default_kernels]
    _check_outputs(options)
    try:
        if options.evaluate:
            contents = read_store(options.out)
            rows = contents.finished()
            for note in [*contents.left_out(), *drop_incomplete(rows)]:
                print(f"note: {options.out}, {note}", file=sys.stderr)
            return _conclude(options, rows)
        work = {"gate": _gate, "repeat": _repeat, "agreement": _agreement}[options.kind]
        usual = gate.SLOWED_BACKEND if options.kind == "gate" else CUDA_BACKEND

        def measure(store: ResultStore, workers: Measurer) -> int:
            rows = work(store, workers, options)
            failed = [row for row in rows if row.status != OK]
            for row in failed:
                print(f"{row.status}: {row.kernel}: {row.error}")
            if failed:
                return EXIT_PARTIAL
            return _conclude(options, rows)

        return with_session(options.kind, options, backend or usual, measure)
    except (StoreError, RunError, OSError) as error:
        print(f"no data: {error}", file=sys.stderr)
        return EXIT_NO_DATA
    except ValueError as error:
        parser.error(str(error))


def _check_outputs(options: argparse.Namespace) -> None:
    """Raises OutputError."""
    profiled = getattr(options, "ncu_csv", None)
    is_made = profiled is not None and not profiled.is_file()
    check_outputs(
        {"--out": None if options.evaluate else options.out, "--json": options.json,
         "--ncu_csv": profiled if is_made else None}
    )  # fmt: skip


def _gate(store: ResultStore, workers: Measurer, options: argparse.Namespace) -> list[Row]:
    jobs = gate_jobs(options)
    policy = Policy(warmups=2, repeats=options.num_repeats, cold_l2=True)
    rows: list[Row] = []
    runs = gate.plan(options.rounds)
    with Progress(len(runs), "gate") as progress:
        for i, (kind, number) in enumerate(runs):
            if i % options.fresh == 0 and isinstance(workers, Supervisor):
                workers.stop()  # the next run starts a new one
            slowed = jobs[(number - 1) % len(jobs)].kernel if kind == "slowed" else ""
            sweep = Sweep(store, workers, policy, command_line(), 0, gate.stage_name(kind, number))
            if i == 0:
                announce(store, sweep)
            references = (Job("fa2", "fa2"),)
            case = gate.GateCase(_problem(options), options.seed, jobs, references, slowed)
            rows += sweep.run(case)
            progress.advance(f"{kind} {number}")
    return rows


def gate_jobs(options: argparse.Namespace) -> tuple[Job, ...]:
    """Kernels that a build has for the gate's lengths, spread over the selection. ValueError if
    there are none."""
    dtype, d_head, seq_len = options.dtypes[0], options.d_heads[0], options.seq_lens[0]
    if seq_len < gate.SLOWED_BLOCKS * gate.BLOCK:
        raise ValueError(f"--seq_lens {seq_len}: the gate needs at least 2560")
    lengths = (seq_len, gate.BASE_BLOCKS * gate.BLOCK, False)
    fitting = [
        config
        for config in args.configs_of(options)
        if (config.dtype, config.d_head, config.blocks()[1]) == (dtype, d_head, gate.BLOCK)
        and has_kernel_for(config, *lengths)
    ]
    if not fitting:
        raise ValueError(
            f"no selected kernel has {dtype.name}, d_head {d_head} and {gate.BLOCK} keys a block"
        )
    step = max(1, len(fitting) // options.n_kernels)
    chosen = fitting[::step][: options.n_kernels]
    return tuple(our_job(config, launched_symbol(config, *lengths)) for config in chosen)


def _problem(options: argparse.Namespace) -> AttentionProblem:
    return AttentionProblem.self_attention(
        options.dtypes[0], options.batch, options.seq_lens[0], BENCHMARK_N_HEADS, options.d_heads[0]
    )


def _repeat(store: ResultStore, workers: Measurer, options: argparse.Namespace) -> list[Row]:
    policy = Policy(warmups=1, repeats=options.num_repeats, cold_l2=True)
    rows: list[Row] = []
    for turn in range(options.sweeps):
        if isinstance(workers, Supervisor):
            workers.stop()
        sweep = Sweep(store, workers, policy, command_line(), stage=f"sweep-{turn:02}")
        if turn == 0:
            announce(store, sweep)
        for case in cases_of(options, [OURS]):
            rows += [row for row in sweep.run(case) if row.status != "skipped"]
    return rows


def _agreement(store: ResultStore, workers: Measurer, options: argparse.Namespace) -> list[Row]:
    policy = Policy(warmups=2, repeats=options.num_repeats, cold_l2=True)
    sweep = Sweep(store, workers, policy, command_line())
    announce(store, sweep)
    rows = [row for case in cases_of(options, [OURS]) for row in sweep.run(case)]
    if isinstance(workers, Supervisor):
        workers.stop()  # the GPU is ncu's now
    if not options.ncu_csv.exists():
        _profile(options, [row for row in rows if row.status == OK])
    return rows


def _profile(options: argparse.Namespace, rows: Sequence[Row]) -> None:
    """Runs ncu_bench.py on the kernels that were timed. Raises RunError."""
    names = dict.fromkeys(parse_kernel_name_into_config(row.kernel) for row in rows)
    command = [
        sys.executable, "-m", _NCU_BENCH, "--csv", "--providers=ours", "--runs=3",
        "--seq_lens=" + ",".join(map(str, options.seq_lens)),
        "--d_heads=" + ",".join(map(str, options.d_heads)),
        "--dtypes=" + ",".join(dtype.name.lower() for dtype in options.dtypes),
        "--kernels", ";".join(config.kernel_name() for config in names),
        *(["--ncu", options.ncu] if options.ncu else []),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": python_path()},
    )  # fmt: skip
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise RunError(f"ncu_bench.py ended with code {done.returncode}: {last}")
    write_output(options.ncu_csv, done.stdout)


def _conclude(options: argparse.Namespace, rows: Sequence[Row]) -> int:
    rows = [row for row in rows if row.status == OK]
    if not rows:
        raise RunError(f"{options.out} has no row that is ok")
    if options.kind != "agreement" and not all("stage" in row.policy for row in rows):
        raise RunError(f"{options.out} is no store of acceptance.py {options.kind}")
    found = list(_verdicts(options, rows))
    provenance = {"environment": rows[-1].environment, "command": rows[-1].command}
    found[-1] |= provenance
    for line in found[:-1]:
        print(_short(line))
    print(json.dumps({k: v for k, v in found[-1].items() if k not in provenance}))
    code = EXIT_OK if found[-1]["ok"] else EXIT_FAILED
    try:
        if options.json:
            append_output(options.json, "".join(json.dumps(line) + "\n" for line in found))
    except OutputError as error:
        print(f"error: {error}; --evaluate --out {options.out} repeats it", file=sys.stderr)
        return ranked(code, [str(error)])
    return code


def _verdicts(options: argparse.Namespace, rows: Sequence[Row]) -> Iterable[Json]:
    if options.kind == "gate":
        return gate.verdicts(rows)
    if options.kind == "agreement":
        return agreement_verdicts(rows, read_ncu(options.ncu_csv))
    stages = dict.fromkeys(row.stage for row in rows)
    return rank_verdicts([[r for r in rows if r.stage == s] for s in stages])


def _short(line: Json) -> str:
    """A verdict in one line."""
    if line["check"] == "gate":
        changes = " ".join(f"{change:+.2f}" for change in line["plain_changes_pct"])
        return (
            f"{line['round']:2} {line['kind']:10} {changes} %: exit {line['plain_exit']} "
            f"(anchored {line['anchored_exit']}) {'; '.join(line['plain_regressions'])}"
        )
    if line["check"] == "agreement":
        return (
            f"{line['seq_len']:6} time {line['time_pct']:+.2f} %, cycles {line['cycles_pct']} % "
            f"({line['pt_loaded_mhz']} and {line['ncu_mhz']} MHz): {line['kernel']}"
        )
    return (
        f"{line['dtype']} {line['seq_len']} sweeps {line['sweeps']}: {line['loss_pct']:.3f} %: "
        f"{line['best']}"
    )


command = functools.partial(guarded, "acceptance.py", main)
