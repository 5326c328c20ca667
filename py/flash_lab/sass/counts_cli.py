"""sass_counts: the command line. tools/analysis/sass_counts.py is its entry."""

import argparse
import functools
import sys
from collections.abc import Sequence

from flash_helpers.base.tool import EXIT_OK, guarded, tool_parser

from . import arguments as args
from .classes import count_classes, count_opcodes
from .listing import Listing
from .render import FORMATS, Cell, render
from .sources import Code

DESCRIPTION = """Instructions of kernels by class or opcode, of the loop (a KV block) or of all.

    sass_counts.py --version all
    sass_counts.py --kernels tune --arch sm_90a --where kernel --by opcode --format csv

Exit codes: 0 ok, 2 usage, 4 no machine code to be had, 130 interrupted.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = tool_parser("sass_counts.py", DESCRIPTION)
    args.add_source_arguments(parser)
    add = parser.add_argument
    add("--where", choices=("loop", "kernel"), default="loop", help="default: loop")
    add("--by", choices=("class", "opcode"), default="class", help="default: class")
    add("--format", choices=FORMATS, default="table", help="default: table")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    return args.run_tool("sass_counts", make_parser(), argv, work)


def work(options: argparse.Namespace) -> int:
    code = args.open_code(options)
    listings = args.selected_listings(options, code)
    count = count_classes if options.by == "class" else count_opcodes
    counts = [count(listing.part(options.where)) for listing in listings]
    names = dict.fromkeys(name for found in counts for name in found)
    shown = [name for name in names if any(found.get(name) for found in counts)]
    rows = [_row(x, code, found, shown) for x, found in zip(listings, counts, strict=True)]
    sys.stdout.write(render(rows, options.format))
    return EXIT_OK


def _row(
    listing: Listing, code: Code, counts: dict[str, int], shown: Sequence[str]
) -> dict[str, Cell]:
    usage = code.usage.get((listing.name, listing.architecture))
    row: dict[str, Cell] = {
        "kernel": listing.name,
        "arch": listing.architecture,
        "registers": usage.registers if usage else "unknown",
        "stack": usage.stack_bytes if usage else "unknown",
        "total": sum(counts.values()),
    }
    return row | {name: counts.get(name, 0) for name in shown}


command = functools.partial(guarded, "sass_counts.py", main)
