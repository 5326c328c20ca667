"""extract_sass: the command line. tools/build/extract_sass.py is its entry."""

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

from flash_helpers.base.outputs import check_outputs
from flash_helpers.base.tool import EXIT_OK, guarded, tool_parser
from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.codegen.files import write_if_changed
from flash_helpers.kernels.names import parse_kernel_name_into_config

from . import arguments as args
from .listing import Listing

DESCRIPTION = """Listings of kernels' machine code: labels, the main loop marked, no encodings.

    extract_sass.py --version 8                                  one kernel, to standard output
    extract_sass.py --kernels prog --arch sm_90a --out sass/ --ptx
    extract_sass.py --version all --compile --out sass/          without a built extension

Exit codes: 0 ok, 2 usage, 4 no machine code to be had, 130 interrupted.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = tool_parser("extract_sass.py", DESCRIPTION)
    args.add_source_arguments(parser)
    add = parser.add_argument
    add("--out", type=Path, metavar="DIR", help="a file for each kernel and architecture")
    add("--loop", action="store_true", help="only the main loop")
    add("--ptx", action="store_true", help="with --out: nvcc's PTX too (compiled, cached)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    return args.run_tool("extract_sass", make_parser(), argv, work)


def work(options: argparse.Namespace) -> int:
    check_outputs({}, {"--out": options.out})
    listings = args.selected_listings(options, args.open_code(options))
    if options.out is None:
        if options.ptx or len(listings) > 1:
            raise ValueError(f"{len(listings)} listings: --out is needed for more than one or PTX")
        sys.stdout.write(_text(listings[0], options.loop))
        return EXIT_OK
    options.out.mkdir(parents=True, exist_ok=True)
    for listing in listings:
        name = f"{listing.name}.{listing.architecture}.sass"
        write_if_changed(options.out / name, _text(listing, options.loop))
    names = dict.fromkeys(listing.name for listing in listings) if options.ptx else {}
    for name in names:
        config = parse_kernel_name_into_config(name)
        write_if_changed(options.out / f"{name}.ptx", kernel_ptx(config))
    print(f"{len(listings)} listings and {len(names)} PTX files in {options.out}")
    return EXIT_OK


def _text(listing: Listing, loop: bool) -> str:
    if not loop:
        return listing.text()
    return Listing(listing.name, listing.architecture, listing.loop).text()


command = functools.partial(guarded, "extract_sass.py", main)
