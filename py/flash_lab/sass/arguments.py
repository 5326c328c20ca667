"""Command-line arguments that the tools for machine code share."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from flash_helpers.base.tool import EXIT_NO_DATA, EXIT_USAGE
from flash_helpers.build.kernel_ptx import DEFAULT_ARCHITECTURE
from flash_helpers.compilers.errors import BuildError
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.history import select_versions

from ..correctness.selection import select_kernels
from .disassembler import SassError
from .listing import Listing
from .sources import Code, built_extension, compiled


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--library", type=Path, metavar="FILE",
        help="a built extension, an object, a cubin, or a listing (*.sass, *.txt); default: "
        "flash_attention._C")  # fmt: skip
    source.add_argument("--compile", action="store_true",
        help="compile the selected kernels from the sources, one by one (cached)")  # fmt: skip
    add("--kernels", action="append", help="as for run_kernels.py: words or names; default: all")
    add("--version", metavar="N", help="steps of previous_kernels/: 1 to 16, 3,7,8 or all")
    add("--match", action="append", default=[], metavar="PATTERN",
        help="kernels whose symbols match a shell pattern")  # fmt: skip
    add("--arch", default="", metavar="sm_XY",
        help=f"default: all in the file; with --compile {DEFAULT_ARCHITECTURE}")  # fmt: skip


def add_colour_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")


def wants_colour(options: argparse.Namespace) -> bool:
    return options.color == "always" or (options.color == "auto" and sys.stdout.isatty())


def selected_configs(options: argparse.Namespace) -> list[KernelConfig]:
    """What --kernels and --version name; nothing if neither is given. Raises ValueError."""
    found = select_kernels(options.kernels) if options.kernels is not None else []
    if options.version is not None:
        found += select_versions(options.version)
    return list(dict.fromkeys(found))


def open_code(options: argparse.Namespace) -> Code:
    """Raises SassError, ValueError for a bad selection."""
    if options.compile:
        configs = selected_configs(options)
        if not configs:
            raise ValueError("--compile needs --kernels or --version: what is to be compiled?")
        try:
            return compiled(configs, options.arch or DEFAULT_ARCHITECTURE)
        except (BuildError, RuntimeError) as error:
            raise SassError(str(error)) from error
    return Code((options.library or built_extension(),))


def selected_listings(options: argparse.Namespace, code: Code) -> list[Listing]:
    names = [config.kernel_name() for config in selected_configs(options)]
    return code.select([*names, *options.match], options.arch)


def run_tool(name: str, parser: argparse.ArgumentParser, argv: Sequence[str] | None,
             work: Callable[[argparse.Namespace], int]) -> int:  # fmt: skip
    """Parses, works, and turns what can go wrong into messages and exit codes."""
    options = parser.parse_args(argv)
    try:
        return work(options)
    except SassError as error:
        print(f"{name}: no data: {error}", file=sys.stderr)
        return EXIT_NO_DATA
    except ValueError as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return EXIT_USAGE
