"""Profile kernels and the references with NVIDIA Nsight Compute (ncu) on one GPU.

    KERNELS=tune ncu_bench.py --seq_lens=1024,4096 --d_heads=128 --csv > ncu.csv
    ncu_bench.py --kernels prog --runs 3 --metrics sm__inst_executed.sum --providers ours,v2

Runs run_kernels.py under ncu, one process for each head size, length and dtype; the outputs are
checked as well. Caches are flushed before each launch; clocks are left alone unless --clock-control
base.
Exit codes: 0 ok, 1 a check failed, 2 usage, 3 some rows failed, 4 no data, 130 interrupted.
"""

import argparse
import signal
import sys

from flash_helpers.base.dtypes import DType
from flash_helpers.base.tool import EXIT_NO_DATA, guarded, tool_parser
from flash_helpers.check.sizes import BATCH_SIZE_FOR_SEQ_LEN, BENCHMARK_N_HEADS
from flash_helpers.kernels.problem import fresh_seed

from ..arguments import dtype_list, list_of, positive, positive_list, seed
from ..correctness.selection import select_kernels
from ..provenance import provenance
from .ncu import NcuCase, Result, exit_code, measure
from .ncu_classify import PROVIDERS
from .ncu_metrics import with_extra
from .ncu_run import CLOCK_CONTROLS, READERS, Ncu, NcuError, find_ncu, open_ncu
from .ncu_table import render_csv, render_notes, render_table


def make_parser() -> argparse.ArgumentParser:
    parser = tool_parser("ncu_bench.py", __doc__)
    add = parser.add_argument
    add("--d_heads", type=positive_list, default=[128])
    add("--seq_lens", type=positive_list, default=[512, 1024, 2048, 4096])
    add("--runs", type=positive, default=1, help="launches of each kernel, averaged; default 1")
    add("--csv", action="store_true", help="CSV on standard output, all else on standard error")
    add("--no_sort", action="store_true", help="in the order of the runs, not by duration")
    add("--metrics", type=lambda text: text.split(","), default=[], metavar="NAME,NAME",
        help="more of ncu's metrics, beside the standard ones")  # fmt: skip
    add("--clock-control", choices=CLOCK_CONTROLS, default="none",
        help="none (default): clocks are not touched; base: ncu locks them meanwhile")  # fmt: skip
    add(
        "--providers",
        type=list_of("provider", PROVIDERS),
        default=list(PROVIDERS),
        help="default: ours,v2,v3",
    )
    add("--kernels", action="append", help="as for run_kernels.py; default: what KERNELS names")
    add("--dtypes", type=dtype_list, default=list(DType), help="default: all that kernels have")
    add("--batch", type=positive, help="default: by length, as everywhere")
    add("--heads", type=positive, default=BENCHMARK_N_HEADS)
    add("--seed", type=seed, help="of the inputs; default: a fresh one, which is printed")
    add("--ncu", help="the program; default: $NCU, then PATH")
    add("--reader", choices=READERS, default="auto", help="auto: ncu's CSV")
    add("--timeout", type=positive, default=900, help="seconds for each ncu run; default 900")
    return parser


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def make_cases(args: argparse.Namespace) -> list[NcuCase]:
    configs = [c for c in select_kernels(args.kernels) if c.dtype in args.dtypes]
    run_seed = fresh_seed() if args.seed is None else args.seed
    by_dtype = [[c for c in configs if c.dtype == dtype] for dtype in args.dtypes]
    # One run per dtype: the symbols of some references do not tell it.
    return [
        NcuCase.of(
            same, seq_len, d_head, args.batch or BATCH_SIZE_FOR_SEQ_LEN[seq_len], args.heads,
            run_seed, args.runs, args.providers,
        )
        for d_head in args.d_heads
        for seq_len in args.seq_lens
        for same in by_dtype
        if same
    ]  # fmt: skip


def run(args: argparse.Namespace, ncu: Ncu, cases: list[NcuCase]) -> int:
    reader = "ncu's CSV" if ncu.module is None else f"ncu_report ({ncu.module.__file__})"
    origin = provenance() | {"ncu": ncu.version, "clock_control": ncu.clock_control}
    for key, value in (origin | {"reader": reader}).items():
        say(f"{key}: {value}")
    results: list[Result] = []
    header = True
    for case in cases:
        result = measure(ncu, case, say)
        results.append(result)
        if not args.csv:
            print(f"\n{render_table(result, ncu.metrics, not args.no_sort)}", flush=True)
            continue
        for line in render_notes(result):
            say(line)
        if result.rows:
            text = render_csv(result, ncu.metrics, not args.no_sort, origin, header)
            print(text, end="", flush=True)
            header = False
    return exit_code(results)


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser()
    args = parser.parse_args(arguments)
    try:
        cases = make_cases(args)
        metrics = with_extra(args.metrics)
    except ValueError as error:
        parser.error(str(error))
    try:
        path = find_ncu(args.ncu)
        ncu = open_ncu(path, args.reader, args.clock_control, args.timeout, metrics)
        return run(args, ncu, cases)
    except NcuError as error:
        say(f"ncu_bench.py: no data: {error}")
        return EXIT_NO_DATA


def command() -> int:
    """The command: ncu_bench.py and flash-ncu-bench."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return guarded("ncu_bench.py", main)


if __name__ == "__main__":
    sys.exit(command())
