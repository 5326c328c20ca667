"""profiling: the command line. tools/benchmark/profiling.py and `python -m
flash_lab.profiling` are its entries."""

import argparse
import functools
from collections.abc import Sequence
from typing import Any

from flash_helpers.base.tool import guarded, tool_parser

from . import bottleneck_cli, waves_cli
from .calls_cli import Benchmark, Mlp, Profile

DESCRIPTION = """Where the time of a call goes, and what limits a kernel (docs/profiling.md).

Exit codes: 0 ok, 1 a check failed, 2 usage, 3 some rows failed, 4 no data, 130 interrupted.
"""

_COMMANDS: dict[str, tuple[Any, str]] = {
    "benchmark": (Benchmark, "how long a call takes"),
    "profile": (Profile, "which operations take the time; a flame graph"),
    "mlp": (Mlp, "a training loop with ranges, as an example for nsys"),
    "bottleneck": (bottleneck_cli, "what limits a kernel, from ncu's counters"),
    "waves": (waves_cli, "what a launch loses in its last wave"),
}


def make_parser() -> argparse.ArgumentParser:
    parser = tool_parser("profiling.py", DESCRIPTION)
    commands = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")
    for name, (module, title) in _COMMANDS.items():
        sub = commands.add_parser(
            name, help=title, description=module.DESCRIPTION, allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        module.add_parser(sub)
        sub.set_defaults(run=module.run, parser=sub)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(argv)
    code: int = options.run(options.parser, options)
    return code


command = functools.partial(guarded, "profiling.py", main)
