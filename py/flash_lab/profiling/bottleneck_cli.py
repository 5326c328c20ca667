"""bottleneck: what limits kernels, by ncu's counters. A command of `profiling.py`."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from flash_helpers.base.outputs import OutputError, check_outputs, make_folder, write_output
from flash_helpers.base.tool import EXIT_FAILED, EXIT_NO_DATA, EXIT_OK, EXIT_PARTIAL, ranked
from flash_helpers.build.architectures import present_gpus
from flash_helpers.compilers.errors import BuildError

from .. import arguments as args
from ..bench.ncu_messages import advise, tail
from ..bench.ncu_metrics import MetricError
from ..bench.ncu_read import Launch, ReadError, Reading, read_csv
from ..bench.ncu_run import NcuError, NcuTimeoutError, find_ncu, open_ncu, profile
from . import known
from .bottleneck import explain
from .bottleneck_metrics import METRICS, values_of

DESCRIPTION = """Name what limits each kernel, from the counters of Nsight Compute.

    profiling.py bottleneck --kernel 'regex:flash_fwd.*' python run.py    # profiles a command
    profiling.py bottleneck --csv ncu.csv            # what such a run has recorded, without a GPU
    profiling.py bottleneck --known                  # five kernels whose bottleneck is known

--known exits with 1 unless all five are named right; with --csv it repeats that of a recorded run.
Exit codes: 0 explained, 1 one of --known is named wrongly, 2 usage, 3 some kernels lack counters,
4 no data, 130 interrupted.
"""


def add_parser(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("command", nargs=argparse.REMAINDER, help="what to profile; behind all options")
    add("--kernel", default="regex:.*", metavar="NAME", help="ncu's --kernel-name; default: all")
    add("--launches", type=args.positive, default=20, help="at most so many; default 20")
    add("--known", action="store_true", help="run the kernels whose bottleneck is known")
    add("--csv", type=Path, metavar="FILE", help="explain ncu's recorded CSV output instead")
    add("--save", type=Path, metavar="FILE", help="write ncu's output here, for --csv")
    add("--ncu", help="the program; default: $NCU, then PATH")
    add("--timeout", type=args.positive, default=300, help="seconds for ncu; default 300")
    parser.set_defaults(unsaved=())


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    command: list[str] = options.command[1:] if options.command[:1] == ["--"] else options.command
    if bool(command) + bool(options.known or options.csv) != 1:
        parser.error("expected a command to profile, or --known, or --csv FILE")
    if (save := options.save) is not None:  # its folder is made if need be
        check_outputs({"--save": save} if save.parent.exists() else {}, {"--save": save.parent})
    try:
        reading, text = _read(options) if options.csv else _profile(options, command)
    except (NcuError, NcuTimeoutError, BuildError, ReadError, OSError, RuntimeError) as error:
        print(f"profiling.py bottleneck: no data: {error}", file=sys.stderr)
        return EXIT_NO_DATA
    for problem in reading.problems[:10]:
        print(f"note: {problem}", file=sys.stderr)
    if options.known:
        code = _report_known(known.verdicts(reading.launches, text))
    else:
        code = _report(reading.launches)
    return ranked(code, options.unsaved)


def _read(options: argparse.Namespace) -> tuple[Reading, str]:
    text = options.csv.read_text(errors="replace")
    return read_csv(text), text


def _profile(options: argparse.Namespace, command: Sequence[str]) -> tuple[Reading, str]:
    if options.known:
        gpus = present_gpus()
        if not gpus:
            raise NcuError("there is no GPU; --known --csv FILE repeats a recorded run")
        command = [str(known.program(gpus[0]))]
    found = open_ncu(find_ncu(options.ncu), "csv", "none", options.timeout, METRICS)
    kernels = known.KERNEL_FILTER if options.known else options.kernel
    ran = profile(replace(found, kernel_filter=kernels, launch_count=options.launches), command)
    try:
        if options.save:
            make_folder(options.save.parent)
            write_output(options.save, ran.text)
    except OutputError as error:  # what it says is still explained
        print(f"error: {error}", file=sys.stderr)
        options.unsaved = [str(error)]
    if not ran.reading.launches:
        said = ran.read_error or "; ".join(advise(ran.text)) or f"the end of it:\n{tail(ran.text)}"
        raise NcuError(f"ncu (exit code {ran.code}) profiled no kernel {kernels!r}: {said}")
    if ran.code:
        ran.reading.problems.append(f"ncu or its target ended with code {ran.code}")
    return ran.reading, ran.text


def _report(launches: Sequence[Launch]) -> int:
    explained = 0
    for launch in launches:
        try:
            print(f"{launch.symbol}\n{explain(values_of(launch))}\n")
            explained += 1
        except MetricError as error:
            print(f"{launch.symbol}\n  not explained: {error}\n")
    if not explained:
        print("profiling.py bottleneck: no data: nothing was explained", file=sys.stderr)
        return EXIT_NO_DATA
    return EXIT_OK if explained == len(launches) else EXIT_PARTIAL


def _report_known(found: Sequence[known.Verdict]) -> int:
    for verdict in found:
        print(f"{verdict}\n{verdict.found or ''}\n")
    print("\n".join(map(str, found)))
    if not any(verdict.found for verdict in found):
        return EXIT_NO_DATA
    return EXIT_OK if all(verdict.right for verdict in found) else EXIT_FAILED
