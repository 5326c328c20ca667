"""register_history: the command line. tools/analysis/register_history.py is its entry."""

import argparse
import datetime
import functools
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from flash_helpers.base.outputs import check_outputs
from flash_helpers.base.tool import EXIT_FAILED, EXIT_OK, guarded, tool_parser

from ..provenance import source_state
from . import arguments as args
from .history import Build, append, measure, read, regressions
from .render import FORMATS, Cell, painted, render

DESCRIPTION = """Registers and spills of kernels over time: a line for each recorded build.

    register_history.py record history.jsonl                     what is built now
    register_history.py record history.jsonl --version all --compile
    register_history.py show history.jsonl --match '*step1*'

`show` ends with 1 if the newest build spills more than the one before it. Exit codes: 0 ok, 1 a
kernel spills more, 2 usage, 4 no machine code or no record, 130 interrupted.
"""

_QUANTITIES = ("registers", "stack_bytes", "instructions", "loop", "spills", "loop_spills")


def make_parser() -> argparse.ArgumentParser:
    parser = tool_parser("register_history.py", DESCRIPTION)
    parser.add_argument("action", choices=("record", "show"))
    parser.add_argument("history", type=Path, help="JSON lines; created by the first record")
    args.add_source_arguments(parser)
    args.add_colour_argument(parser)
    add = parser.add_argument
    add("--what", choices=_QUANTITIES, default="registers", help="for show; default: registers")
    add("--last", type=int, default=8, metavar="N", help="for show: builds; default 8")
    add("--format", choices=FORMATS, default="table", help="default: table")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    return args.run_tool("register_history", make_parser(), argv, work)


def work(options: argparse.Namespace) -> int:
    if options.action == "record":
        return _record(options)
    if options.last < 1:
        raise ValueError(f"--last {options.last}: expected at least 1")
    builds = read(options.history)
    rows = _rows(builds[-options.last :], options)
    if not rows:
        raise ValueError("no recorded kernel is selected")
    sys.stdout.write(render(rows, options.format))
    found = regressions(builds)
    for line in found:
        print(painted(line, False, args.wants_colour(options)), file=sys.stderr)
    return EXIT_FAILED if found else EXIT_OK


def _record(options: argparse.Namespace) -> int:
    check_outputs({"history": options.history})
    code = args.open_code(options)
    listings = args.selected_listings(options, code)
    state = source_state()
    commit = f"{state['commit']}{' (dirty)' if state['dirty'] is True else ''}"
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M")
    append(options.history, measure(code, listings, commit, date))
    print(f"{options.history}: recorded {len(listings)} kernels of {commit}")
    return EXIT_OK


def _rows(builds: Sequence[Build], options: argparse.Namespace) -> list[dict[str, Cell]]:
    names = [config.kernel_name() for config in args.selected_configs(options)]
    patterns = [*names, *options.match] or ["*"]
    keys = dict.fromkeys((e.kernel, e.architecture) for build in builds for e in build.entries)
    rows = []
    for kernel, architecture in keys:
        wrong_arch = options.arch and architecture != options.arch
        if wrong_arch or not any(fnmatchcase(kernel, pattern) for pattern in patterns):
            continue
        row: dict[str, Cell] = {"kernel": kernel, "arch": architecture}
        for number, build in enumerate(builds, start=1):
            entry = build.entry(kernel, architecture)
            title = f"{number}: {build.commit} {build.date}"
            row[title] = getattr(entry, options.what) if entry else "-"
        rows.append(row)
    return rows


command = functools.partial(guarded, "register_history.py", main)
