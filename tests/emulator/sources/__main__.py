"""Plants bugs in the kernels' CUDA sources, one at a time, and says which no check finds.

    python -m tests.emulator.sources [FAMILY ...] [--every N] [--jobs N] [--verbose] [--list]

Without a FAMILY: of the dense kernels' families, whose total is recorded. Small changes of the
headers in csrc/include/flash (operators, constants, phases, names, orders, calls left out, ...):
each is compiled by nvcc and runs in the emulator under the checks of `make test`. What was found is
kept in the cache directory: an interrupted run goes on where it was, and a bug is planted again
only when its sources, the compiler, the emulator or the checks change.

Exit codes: 0 every bug was found, or is redundant (the same PTX, or a reason in redundant.py), 1
one was missed, or the total is not the recorded one, 2 usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from ..planting import sum_of
from ..totals import SOURCES
from .campaign import fates, outcome_of, some_mutants
from .families import DENSE, FAMILIES


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.emulator.sources", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--every", type=int, default=1, metavar="N", help="a sample: each N-th bug")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--verbose", action="store_true", help="print what found each bug")
    parser.add_argument("--list", action="store_true", help="print the bugs, plant none")
    options = parser.parse_args(arguments)
    if unknown := set(options.families) - set(FAMILIES):
        parser.error(f"no family {', '.join(sorted(unknown))}: there are {', '.join(FAMILIES)}")
    for name in ("jobs", "every"):
        if (number := getattr(options, name)) < 1:
            parser.error(f"--{name} {number}: at least 1")
    families = options.families or list(DENSE)
    bugs = {family: some_mutants(family)[:: options.every] for family in families}
    if options.list:
        print("\n".join(f"{family} {bug}" for family in families for bug in bugs[family]))
        return 0
    outcomes = []
    for family in families:
        found = fates(family, bugs[family], options.jobs)
        outcome = outcome_of(family, found, options.verbose)
        print(outcome)
        print("found by: " + ", ".join(f"{by} {n}" for by, n in outcome.found.most_common()))
        print("".join(f"MISSED {mutant}\n" for mutant in outcome.missed), end="")
        print("".join(f"FOUND, drop it: {reason}\n" for reason in sorted(outcome.needless)), end="")
        sys.stdout.flush()
        outcomes.append(outcome)
    total = sum_of(outcomes)
    print(total)
    is_recorded = set(families) == set(DENSE) and options.every == 1
    if SOURCES and is_recorded and total != SOURCES:
        print(f"RECORDED {SOURCES}: mend tests/emulator/totals.py and the README that quotes it")
        return 1
    return 1 if any(outcome.missed for outcome in outcomes) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
