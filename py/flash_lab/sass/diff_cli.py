"""sass_diff: the command line. tools/analysis/sass_diff.py is its entry."""

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

from flash_helpers.base.tool import EXIT_FAILED, EXIT_OK, guarded, tool_parser
from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.kernels.names import parse_kernel_name_into_config

from . import arguments as args
from .compare import Comparison, ptx_diff
from .disassembler import SassError
from .listing import Listing
from .render import FORMATS, Row, coloured_diff, painted, render, signed
from .sources import Code

DESCRIPTION = """What differs between the machine code of two kernels, or of two builds.

    sass_diff.py --version 8,9                        two kernels of one build
    sass_diff.py --kernels NAME --kernels NAME --listing
    sass_diff.py --version 4,5 --compile --ptx        what ptxas does not let through
    sass_diff.py --old old/_C.so --new new/_C.so      every kernel that both have

Of two builds, a kernel has regressed when it spills more, or when its main loop has grown by more
than --tolerance percent. Exit codes: 0 ok, 1 a kernel has regressed, 2 usage, 4 no machine code to
be had, 130 interrupted.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = tool_parser("sass_diff.py", DESCRIPTION)
    args.add_source_arguments(parser)
    args.add_colour_argument(parser)
    add = parser.add_argument
    add("--old", type=Path, metavar="FILE", help="with --new: compare two builds")
    add("--new", type=Path, metavar="FILE")
    add("--where", choices=("loop", "kernel"), default="loop", help="default: loop")
    add("--listing", action="store_true", help="of two kernels: print the instructions too")
    add("--ptx", action="store_true", help="of two kernels: print how nvcc's PTX differs")
    add("--tolerance", type=float, default=2.0, metavar="PCT", help="of two builds; default 2")
    add("--format", choices=FORMATS, default="table", help="default: table")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    return args.run_tool("sass_diff", make_parser(), argv, work)


def work(options: argparse.Namespace) -> int:
    if (options.old is None) != (options.new is None):
        raise ValueError("--old and --new belong together")
    if options.old is None:
        return _two_kernels(options)
    if options.compile or options.library:
        raise ValueError("--old and --new name the files: no --library, no --compile")
    return _two_builds(options)


def _two_kernels(options: argparse.Namespace) -> int:
    code = args.open_code(options)
    listings = args.selected_listings(options, code)
    architectures = sorted({listing.architecture for listing in listings})
    if len(architectures) > 1:
        listings = [x for x in listings if x.architecture == architectures[-1]]
        print(f"comparing {architectures[-1]}; --arch for another", file=sys.stderr)
    if len(listings) != 2:
        raise ValueError(f"{len(listings)} kernels are selected: two are compared")
    comparison = Comparison(listings[0], listings[1], options.where)
    rows: list[Row] = [
        {"what": kind, "name": c.name, "before": c.before, "after": c.after, "change": c.difference}
        for kind, changes in (("class", comparison.classes), ("opcode", comparison.opcodes))
        for c in changes
    ]
    for key, name in (("registers", "registers"), ("stack_bytes", "stack bytes")):
        values = [_used(code, x, key) for x in listings]
        if None not in values:
            old, new = (int(value or 0) for value in values)
            rows.append(
                {"what": "usage", "name": name, "before": old, "after": new, "change": new - old}
            )
    if options.format == "table":
        print(f"- {listings[0].name}\n+ {listings[1].name}\n({options.where})\n")
    sys.stdout.write(render(rows, options.format))
    if options.format == "table" and comparison.same_but_for_registers:
        same = "registers too" if comparison.identical else "but for register numbers"
        print(f"\nthe same instructions in the same order, {same}")
    if options.ptx:
        was, now = (kernel_ptx(parse_kernel_name_into_config(x.name)) for x in listings)
        lines = ptx_diff(was, now)
        sys.stdout.write("\n" + coloured_diff(lines, args.wants_colour(options)))
    if options.listing:
        sys.stdout.write("\n" + coloured_diff(comparison.diff(), args.wants_colour(options)))
    return EXIT_OK


def _used(code: Code, listing: Listing, key: str) -> int | None:
    usage = code.usage.get((listing.name, listing.architecture))
    return getattr(usage, key) if usage else None


def _two_builds(options: argparse.Namespace) -> int:
    old, new = (Code((file,)) for file in (options.old, options.new))
    names = [config.kernel_name() for config in args.selected_configs(options)] + options.match
    before, after = (
        {(x.name, x.architecture): x for x in code.select(names, options.arch)}
        for code in (old, new)
    )
    common = [key for key in after if key in before]
    if not common:
        raise SassError("the two builds have no kernel in common")
    rows = []
    n_regressed = 0
    for key in common:
        row, regressed = _build_row(before[key], after[key], old, new, options.tolerance)
        n_regressed += regressed
        rows.append(row)
    sys.stdout.write(render(rows, options.format))
    for title, keys in (("old", set(before) - set(after)), ("new", set(after) - set(before))):
        for name, architecture in sorted(keys):
            print(f"only in the {title} build: {name} ({architecture})", file=sys.stderr)
    verdict = f"{n_regressed} of {len(common)} kernels have regressed"
    print(painted(verdict, not n_regressed, args.wants_colour(options)), file=sys.stderr)
    return EXIT_FAILED if n_regressed else EXIT_OK


def _build_row(
    before: Listing, after: Listing, old: Code, new: Code, tolerance: float
) -> tuple[Row, bool]:
    lengths = [len(listing.loop) for listing in (before, after)]
    grown = lengths[1] > lengths[0] * (1 + tolerance / 100)
    registers = [_used(code, x, "registers") for code, x in ((old, before), (new, after))]
    stacks = [_used(code, x, "stack_bytes") or 0 for code, x in ((old, before), (new, after))]
    regressed = grown or stacks[1] > stacks[0]
    same = Comparison(before, after, "kernel").identical
    row: Row = {
        "kernel": after.name,
        "arch": after.architecture,
        "registers": " -> ".join("?" if r is None else str(r) for r in registers),
        "stack": " -> ".join(map(str, stacks)),
        "instructions": signed(len(after.instructions) - len(before.instructions)),
        "loop": signed(lengths[1] - lengths[0]),
        "verdict": "regressed" if regressed else "identical" if same else "changed",
    }
    return row, regressed


command = functools.partial(guarded, "sass_diff.py", main)
