"""steps_report: the command line. tools/analysis/steps_report.py is its entry."""

import argparse
import functools
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from flash_helpers.base.outputs import check_outputs, make_folder, write_output
from flash_helpers.base.paths import previous_dir
from flash_helpers.base.tool import EXIT_NO_DATA, EXIT_OK, guarded, tool_parser
from flash_helpers.build.kernel_ptx import DEFAULT_ARCHITECTURE
from flash_helpers.compilers.errors import BuildError

from ..bench.row import Json
from ..sass.disassembler import SassError
from ..sass.steps import programs
from .data import ReportError, StepFacts, join, read_counters, read_speeds
from .page import render_page
from .plot import draw

DESCRIPTION = """Write the page about the sixteen steps: previous_kernels/README.md and its plot.

    steps_report.py --sweep steps.jsonl --ncu ncu.csv
    steps_report.py                                     machine code only, nothing measured

tools/benchmark/benchmark_steps.sh makes both files: a store of pt_bench.py with FlashAttention-2,
and the CSV of ncu_bench.py with the instruction counters. Exit codes: 0 written, 2 usage, 4 a file
lacks what the page needs, or there is no compiler, 130 interrupted.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = tool_parser("steps_report.py", DESCRIPTION)
    add = parser.add_argument
    add("--sweep", type=Path, metavar="FILE.jsonl")
    add("--ncu", type=Path, metavar="FILE.csv", help="needs --sweep")
    add("--out", type=Path, metavar="DIR", help="default: previous_kernels/")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.ncu and not options.sweep:
        parser.error("--ncu needs --sweep")
    if options.sweep and importlib.util.find_spec("matplotlib") is None:
        parser.error("the plot needs matplotlib: pip install matplotlib")
    check_outputs({}, {"--out": options.out or previous_dir()})
    try:
        return _write(options)
    except (ReportError, SassError, BuildError, RuntimeError) as error:
        print(f"steps_report: no data: {error}", file=sys.stderr)
        return EXIT_NO_DATA


def _write(options: argparse.Namespace) -> int:
    folder = options.out or previous_dir()
    speeds, environment = read_speeds(options.sweep) if options.sweep else ({}, {})
    counters, problem = read_counters(options.ncu) if options.ncu else ({}, {})
    facts = join(programs(DEFAULT_ARCHITECTURE, os.cpu_count() or 1), speeds, counters)
    page = render_page(facts, _where(facts, environment, problem))
    make_folder(folder)
    written = [folder / "README.md"]
    if speeds:
        picture = draw(facts, str(environment.get("gpu", "this GPU")))
        written.append(folder / "steps.svg")
        write_output(written[-1], picture)
    write_output(written[0], page)
    print(f"written: {', '.join(map(str, written))}")
    return EXIT_OK


def _where(
    facts: Sequence[StepFacts], environment: Json, problem: dict[str, str]
) -> dict[str, str]:
    names = ("gpu", "driver", "power_limit", "cuda", "torch", "commit")
    where = {name: str(environment.get(name, "unknown")) for name in names}
    speed = facts[0].speed
    where["lengths"] = ", ".join(map(str, speed.lengths)) if speed else ""
    where["architecture"] = DEFAULT_ARCHITECTURE
    where["ncu_problem"] = ", ".join(f"{name} {value}" for name, value in problem.items())
    return where


command = functools.partial(guarded, "steps_report.py", main)
