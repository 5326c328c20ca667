"""benchmark, profile and mlp: calls of functions. Commands of `profiling.py`."""

import argparse
import sys
from pathlib import Path

from flash_helpers.base.outputs import OutputError, check_outputs
from flash_helpers.base.tool import EXIT_OK

from .. import arguments as args
from .calls import StackFilesError, benchmark, profile, stack_files
from .mlp import run_mlp
from .workloads import EXAMPLES, Run, Size, find

_WHAT = f"{', '.join(EXAMPLES)} or MODULE:FUNCTION (imported, called without arguments)"


class Benchmark:
    DESCRIPTION = """The mean time of a call, by the wall clock, from an idle GPU to an idle GPU.

    profiling.py benchmark attention mlp --num_trials 10

Launch overhead is in it; pt_bench.py times kernels. Without a GPU, the CPU is timed.
Exit codes: 0 ok, 2 usage, 130 interrupted.
"""

    @staticmethod
    def add_parser(parser: argparse.ArgumentParser) -> None:
        _add_workload(parser)
        parser.add_argument("--num_trials", type=args.positive, default=3)

    @staticmethod
    def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
        for name in options.what:
            call = _find(parser, options, name)
            ms = benchmark(name, call, options.num_warmups, options.num_trials)
            print(f"{name}: {ms:.4f} ms (mean of {options.num_trials})", flush=True)
        return EXIT_OK


class Profile:
    DESCRIPTION = """The operations that take most time, and with --with_stack a flame graph.

    profiling.py profile block --with_stack          # var/stacks_block.txt and .svg
    profiling.py profile mypackage.mymodule:run --out_dir profiles

On a GPU the time is that of its kernels. Exit codes: 0 ok, 2 usage, 130 interrupted.
"""

    @staticmethod
    def add_parser(parser: argparse.ArgumentParser) -> None:
        _add_workload(parser)
        parser.add_argument("--with_stack", action="store_true", help="stacks and a flame graph")
        parser.add_argument("--out_dir", type=Path, default=Path("var"), help="default: var")

    @staticmethod
    def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
        if options.with_stack:
            try:
                check_outputs({}, {"--out_dir": options.out_dir})
            except OutputError as error:
                parser.error(str(error))
        for name in options.what:
            call = _find(parser, options, name)
            try:
                table = profile(
                    name, call, options.num_warmups, options.with_stack, out_dir=options.out_dir
                )
            except StackFilesError as error:
                print(f"## {name}\n{error.table}", flush=True)
                parser.error(f"--out_dir {options.out_dir}: {error.strerror}")
            print(f"## {name}\n{table}", flush=True)
            if options.with_stack:
                print("\n".join(map(str, stack_files(name, options.out_dir))), flush=True)
        return EXIT_OK


class Mlp:
    DESCRIPTION = """A small training loop with a range around everything, for nsys or ncu.

    nsys profile -o mlp --trace=cuda,nvtx --capture-range=cudaProfilerApi \\
        python tools/benchmark/profiling.py mlp --dim 1024 --num_layers 8 --use_optimizer

Ranges: define_model, define_input, step_i, forward, layer_i, backward, optimizer_step. On a GPU the
CUDA profiler starts behind step_10, and the peak memory is printed.
Exit codes: 0 ok, 2 usage, 130 interrupted.
"""

    @staticmethod
    def add_parser(parser: argparse.ArgumentParser) -> None:
        for name, default in (("dim", 1024), ("num_layers", 8), ("batch_size", 128)):
            parser.add_argument(f"--{name}", type=args.positive, default=default)
        parser.add_argument("--num_steps", type=args.positive, default=100)
        parser.add_argument("--use_optimizer", action="store_true", help="Adam")

    @staticmethod
    def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
        run_mlp(
            options.dim, options.num_layers, options.batch_size, options.num_steps,
            options.use_optimizer,
        )  # fmt: skip
        return EXIT_OK


def _add_workload(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("what", nargs="+", help=_WHAT)
    add("--num_warmups", type=args.number(0, 10_000, int), default=1)
    group = parser.add_argument_group("sizes of the examples")
    size = Size()
    for name in ("batch", "seq_len", "heads", "d_head", "num_layers"):
        default = getattr(size, name)
        help_text = f"default {default}"
        group.add_argument(f"--{name}", type=args.positive, default=default, help=help_text)


def _find(parser: argparse.ArgumentParser, options: argparse.Namespace, name: str) -> Run:
    size = Size(
        options.batch, options.seq_len, options.heads, options.d_head, options.num_layers
    )  # fmt: skip
    sys.path.insert(0, "")  # MODULE may lie in the current folder
    try:
        return find(name, size)
    except ValueError as error:
        parser.error(str(error))
    finally:
        sys.path.remove("")
