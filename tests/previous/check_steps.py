"""check_steps: the command line. tools/analysis/check_steps.py is its entry."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Sequence

from flash_helpers.base.tool import EXIT_FAILED, EXIT_OK, guarded, tool_parser
from flash_helpers.build.kernel_ptx import DEFAULT_ARCHITECTURE
from flash_helpers.compilers.errors import BuildError
from flash_lab.sass import arguments as args
from flash_lab.sass.disassembler import SassError
from flash_lab.sass.render import painted
from flash_lab.sass.steps import programs

from .claims import check_steps

DESCRIPTION = """Whether each of the sixteen steps shows in its machine code what steps.toml says.

    check_steps.py
    check_steps.py --arch sm_80

Exit codes: 0 all claims hold, 1 one does not, 2 usage, 4 nothing to disassemble, 130 interrupted.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = tool_parser("check_steps.py", DESCRIPTION)
    add = parser.add_argument
    add("--arch", default=DEFAULT_ARCHITECTURE, metavar="sm_XY")
    args.add_colour_argument(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    return args.run_tool("check_steps", make_parser(), argv, work)


def work(options: argparse.Namespace) -> int:
    try:
        found = programs(options.arch, jobs=os.cpu_count() or 1)
    except (BuildError, RuntimeError) as error:
        raise SassError(str(error)) from error
    colour = args.wants_colour(options)
    results = check_steps(found)
    for result in results:
        print(f"{result.step.number:2} {result.step.title}: {result.step.sass}")
        for verdict in result.verdicts:
            print(painted(f"     {verdict}", verdict.holds, colour))
    failed = [result.step.number for result in results if not result.holds]
    good = len(results) - len(failed)
    print(f"{good} of {len(results)} steps are what they say ({options.arch})")
    return EXIT_FAILED if failed else EXIT_OK


command = functools.partial(guarded, "check_steps.py", main)
