"""What the package finds of itself.

    python -m flash_attention doctor [--json]
    python -m flash_attention cache [--clear [FOLDER ...]]

Exit codes: 0 all right, 1 something is wrong, 2 usage, or a cache that cannot be used.
"""

import argparse
import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from flash_helpers.base.cache import configured_directory
from flash_helpers.base.tool import EXIT_FAILED, EXIT_OK, guarded, tool_parser

from . import caches, kernels, machine
from .records import Row, State, examine


def rows() -> Iterator[Row]:
    """Each as soon as it is found: the self-test, the last, may compile for half a minute."""
    for part in (machine, caches, kernels):
        yield from map(examine, part.checks())


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    if given.command == "cache":
        return _cache(given.clear)
    found = []
    for row in rows():
        found.append(row)
        if not given.json:
            _show(row)
    wrong = sum(row.state is State.WRONG for row in found)
    report = json.dumps({"wrong": wrong, "rows": list(map(asdict, found))}, indent=1)
    print(report if given.json else f"{wrong} wrong")
    return EXIT_FAILED if wrong else EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser("flash-attention", __doc__ or "")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    doctor = commands.add_parser("doctor", help="what is here, what is wrong, and what to do")
    doctor.add_argument("--json", action="store_true", help="for programs")
    cache = commands.add_parser("cache", help="what lies in the cache")
    what = f"empty these folders; by default all but {caches.MEASURED}, which holds measurements"
    cache.add_argument("--clear", nargs="*", choices=caches.FOLDERS, metavar="FOLDER", help=what)
    return parser


def _show(row: Row) -> None:
    print(f"{row.state:5}  {row.section:9}  {row.name:13}  {row.text}", flush=True)
    if row.remedy:
        print(f"{'':5}  {'':9}  {'what to do:':13}  {row.remedy}", flush=True)


def _cache(cleared: Sequence[str] | None) -> int:
    for name in cleared or caches.FOLDERS:
        folder = configured_directory() / name
        if cleared is None:
            print(f"{folder}: {caches.contents(folder)}")
        elif cleared or name != caches.MEASURED:
            print(f"{folder}: removed {caches.clear(folder)}", flush=True)
    return EXIT_OK


command = functools.partial(guarded, "flash-attention", main)
