"""Time operators over sizes, on one GPU: a curve with the best working point, and whether one is
slower than it was.

    operators.py --names softmax,matmul --sizes 1024,2048,4096,8192 --chart curve.png
    operators.py --baselines operators.jsonl --update_baseline
    operators.py --baselines operators.jsonl

An operator works on n x n numbers. Slower: surely, and by more than --threshold. Exit codes: 0 ok,
1 a regression, 2 usage, 3 some operator does not run, or has no baseline, 4 no data,
130 interrupted.
"""

import argparse
import functools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from flash_helpers.base import tool
from flash_helpers.base.outputs import check_outputs, write_output
from flash_helpers.base.text_table import text_table
from flash_helpers.base.timing import CudaTimer, Timer

from ..arguments import list_of, number, positive_list
from ..bench.charts import over_sizes
from ..bench.energy import EnergyError, EnergyMeter, cuda_mark
from ..bench.records import head
from ..bench.store import StoreError
from ..provenance import provenance
from .baselines import THRESHOLD, PerformanceRegressionTester
from .cases import NAMES, Case, case
from .environment import UnfitEnvironmentError, require_fit
from .matmul_cli import DTYPES
from .shapes import Point, best_working_point, sensitivity

Curves = dict[str, list[Point]]
_COLUMNS = ("operator", "shape", "ms", "GFLOP/s", "GB/s", "GOPS/W", "")


def curves(
    options: argparse.Namespace, device: str, timer: Timer, make: Callable[..., Case]
) -> tuple[Curves, bool]:
    """What was measured, and whether everything was; what does not run is said."""
    dtype, found, complete = getattr(torch, options.dtype), Curves(), True
    try:
        meter = EnergyMeter("", cuda_mark) if options.energy else None
    except EnergyError as error:
        print(f"operators.py: no energy: {error}", file=sys.stderr)
        meter = None
    for name in options.names:
        for n in options.sizes:
            try:
                job = make(name, n, dtype, device)
                found.setdefault(name, []).extend(sensitivity([job], timer=timer, meter=meter))
            except Exception as error:  # of the compiler, the driver, or a refusal
                print(f"{name}, {n}: {head(f'{type(error).__name__}: {error}')}", file=sys.stderr)
                complete = False
    return found, complete


def table(found: Curves) -> str:
    lines = [
        (name, "x".join(map(str, p.shape)), f"{p.ms:.4g}",
         f"{p.gflops:.0f}" if p.work.flop else "-", f"{p.gb_s:.0f}",
         "-" if p.gops_per_watt is None else f"{p.gops_per_watt:.3g}",
         "best working point" if p is best_working_point(points) else p.note)
        for name, points in found.items() for p in points
    ]  # fmt: skip
    return text_table(_COLUMNS, lines, words=("operator", "shape", ""))


def chart(found: Curves, dtype: str) -> bytes:
    sizes = {
        name: [(p.work.n_bytes, p.speed / 1e3) for p in points] for name, points in found.items()
    }
    best = {name: best_working_point(points).work.n_bytes for name, points in found.items()}
    return over_sizes(sizes, best, f"TFLOP/s, or TB/s where nothing is multiplied ({dtype})")


def verdicts(
    tester: PerformanceRegressionTester, found: Curves, dtype: str, update: bool
) -> tuple[bool, bool]:
    """(no regression, every row has a baseline): of the rows, each of which is printed."""
    taken = {
        f"{name} {'x'.join(map(str, p.shape))} {dtype}": p.samples_ms
        for name, points in found.items() for p in points
    }  # fmt: skip
    known = {name for name in taken if name in tester.baselines}
    results = {name: tester.check_regression(name, samples) for name, samples in taken.items()}
    for name, verdict in results.items():
        print(f"{name}: {verdict.message}")
    if update:
        tester.update_baseline(taken)
    return all(results[name].ok for name in known), update or len(known) == len(taken)


def make_parser() -> argparse.ArgumentParser:
    parser = tool.tool_parser("operators.py", __doc__ or "")
    add = parser.add_argument
    add("--names", type=list_of("operator", NAMES), default=list(NAMES), help=", ".join(NAMES))
    add("--sizes", type=positive_list, default=[1024, 2048, 4096, 8192], help="n,... of n x n")
    add("--dtype", choices=DTYPES, default=DTYPES[1])
    add("--energy", action="store_true", help="10^9 operations a joule, half a second a row")
    add("--chart", type=Path, help="a PNG file of the curves")
    add("--out", type=Path, help="a JSON file of the rows")
    add("--baselines", type=Path, metavar="FILE", help="a store: compare with what it has")
    add("--update_baseline", action="store_true", help="keep these times in it")
    add("--threshold", type=number(0, 1000), default=100 * THRESHOLD, metavar="PCT",
        help="how much slower is a regression (default 10)")  # fmt: skip
    return parser


def main(
    argv: Sequence[str] | None = None, timer: Timer | None = None, make: Callable[..., Case] = case
) -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.update_baseline and options.baselines is None:
        parser.error("--update_baseline needs --baselines")
    check_outputs({"--chart": options.chart, "--out": options.out})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    environment = provenance()
    try:
        require_fit()
        tester = options.baselines and PerformanceRegressionTester(
            options.baselines, environment, options.threshold / 100
        )
        if timer is None and device == "cpu":
            print("operators.py: no GPU", file=sys.stderr)
            return tool.EXIT_NO_DATA
        timer = timer or CudaTimer(torch.device(device), cold_l2=False)
        found, complete = curves(options, device, timer, make)
        if not found:
            return tool.EXIT_NO_DATA
        print(table(found))
        fast = True
        if tester is not None:
            print(*tester.notes, sep="\n", end="\n" if tester.notes else "", file=sys.stderr)
            fast, all_known = verdicts(tester, found, options.dtype, options.update_baseline)
            complete &= all_known
    except (UnfitEnvironmentError, StoreError) as error:
        parser.error(str(error))
    if options.chart:
        write_output(options.chart, chart(found, options.dtype))
    if options.out:
        write_output(options.out, json.dumps(record(found, environment), indent=1) + "\n")
    if not fast:
        return tool.EXIT_FAILED
    return tool.EXIT_OK if complete else tool.EXIT_PARTIAL


def record(found: Curves, environment: dict[str, str]) -> dict[str, object]:
    """What --out holds: each row with its samples."""
    rows = [
        {"operator": name, "shape": p.shape, "ms": p.ms, "flop": p.work.flop,
         "bytes": p.work.n_bytes, "gops_per_watt": p.gops_per_watt, "samples_ms": p.samples_ms}
        for name, points in found.items() for p in points
    ]  # fmt: skip
    return {"environment": environment, "results": rows}


command = functools.partial(tool.guarded, "operators.py", main)
