"""Prints what each kernel of a build needs: registers, memory, spills, barriers, compile time.

    tools/build/build_report.py                     the latest build, as a table
    tools/build/build_report.py --csv report.csv    as CSV ("-": to standard output)

Exit status: 0 all well, 1 a kernel spills without being allowed to, 2 wrong usage, 4 no build.
"""

import argparse
import functools
import os
import sys
from contextlib import nullcontext
from pathlib import Path

from ..base.outputs import check_outputs, write_output
from ..base.paths import repository_root
from ..base.tool import EXIT_FAILED, EXIT_NO_DATA, EXIT_OK, EXIT_USAGE, guarded
from ..codegen import load_manifest
from ..compilers.errors import BuildError
from ..kernels.sets import known_configs
from . import report
from .lock import build_lock


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    check_outputs({"--csv": Path(options.csv) if options.csv not in (None, "-") else None})
    try:
        directory = options.build_dir or report.latest_build(_build_root())
        lock = directory / "lock"
        # Else the logs of a build that runs would be of two builds, or missing.
        with build_lock(lock) if os.access(lock, os.W_OK) else nullcontext():
            units = load_manifest(directory / "generated").units()
            rows = report.collect(directory, [f"generated/{unit}" for unit in units])
    except (BuildError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_NO_DATA
    rows.sort(key=lambda row: row.cells()[report.HEADINGS.index(options.sort)])
    try:
        allowed = report.load_allowed_spills(options.allowed_spills)
        _print(rows, options.csv)
    except (BuildError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    print(f"{directory}: {report.summary(rows)}", file=sys.stderr)
    return _judge(rows, allowed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build-dir", type=Path, help="default: the latest one below build/")
    parser.add_argument("--csv", metavar="FILE", help='write CSV instead of a table; "-": stdout')
    parser.add_argument("--sort", choices=report.HEADINGS, default="kernel")
    parser.add_argument("--allowed-spills", type=Path, default=report.ALLOWED_SPILLS_FILE)
    return parser


def _build_root() -> Path:
    root = repository_root()
    if root is None:
        raise BuildError("flash_helpers is not imported from a source tree: give --build-dir")
    return root / "build"


def _print(rows: list[report.Row], csv: str | None) -> None:
    if csv:
        text = report.render_csv(rows)
        if csv == "-":
            sys.stdout.write(text)
        else:
            write_output(Path(csv), text)
    else:
        print(report.as_table(rows))


def _judge(rows: list[report.Row], allowed: list[report.AllowedSpill]) -> int:
    for entry in report.unused_entries(allowed, [c.kernel_name() for c in known_configs()]):
        print(f"warning: allowed spill {entry.pattern!r} matches no kernel", file=sys.stderr)
    forbidden = report.forbidden_spills(rows, allowed)
    for row in forbidden:
        name, architecture = row.usage.kernel, row.usage.architecture
        print(f"error: {name} spills on {architecture} and is not allowed to", file=sys.stderr)
    return EXIT_FAILED if forbidden else EXIT_OK


command = functools.partial(guarded, "build_report.py", main)
