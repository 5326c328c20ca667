#!/usr/bin/env python3
"""Time kernels and the references side by side on one GPU, with CUDA events.

    KERNELS=tune pt_bench.py --seq_lens=1024,4096 --d_heads=128
    pt_bench.py --kernels tune --dtypes fp16 --num_repeats 20 --json results.json

Every output is checked before anything is timed. Kernels and references take turns in random
order. Exit codes: 0 ok, 1 a check failed, 2 usage, 3 some rows failed, 4 no data, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

try:
    import flash_helpers  # noqa: F401
except ImportError:  # from a source tree that is not installed
    sys.path[:0] = [str(Path(__file__).resolve().parents[2] / folder) for folder in ("py", "")]

from flash_helpers.bench.provenance import provenance
from flash_helpers.bench.report import table
from flash_helpers.bench.sweep import Problem, Result, run_problem
from flash_helpers.bench.timing import Policy
from flash_helpers.dtypes import DType
from flash_helpers.runner_selection import select_kernels
from flash_helpers.test.utils import BATCH_SIZE_FOR_SEQ_LEN, BENCHMARK_N_HEADS
from flash_helpers.workload import Workload, fresh_seed


def positive_list(text: str) -> list[int]:
    items = text.split(",")
    if not all(i.isascii() and i.isdecimal() and int(i) > 0 for i in items):
        raise argparse.ArgumentTypeError(f"{text!r}: expected positive integers and commas")
    return [int(item) for item in items]


def dtype_list(text: str) -> list[DType]:
    try:
        return [DType.from_string(item) for item in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )  # fmt: skip
    add = parser.add_argument
    add("--d_heads", type=positive_list, default=[128])
    add("--seq_lens", type=positive_list, default=[512, 1024, 2048, 4096])
    add("--dtypes", type=dtype_list, default=[DType.FP16])
    add("--kernels", action="append", help="as for run_kernels.py; default: what KERNELS names")
    add("--num_warmups", type=int, default=2)
    add("--num_repeats", type=int, default=20)
    add("--noncu", action="store_true", help="do not empty the L2 cache before each sample")
    add("--top", type=int, default=0, help="print the fastest N of each problem only")
    add("--seed", type=int, default=None)
    add("--json", type=Path, default=None, help="write all samples and their provenance here")
    return parser


def main() -> int:
    parser = make_parser()
    options = parser.parse_args()
    if options.num_repeats < 1 or options.num_warmups < 0 or options.top < 0:
        parser.error("--num_repeats must be at least 1, --num_warmups and --top at least 0")
    try:
        configs = select_kernels(options.kernels)
    except ValueError as error:
        parser.error(str(error))
    import torch

    if not torch.cuda.is_available():
        print("no data: torch sees no CUDA device", file=sys.stderr)
        return 4
    seed = fresh_seed() if options.seed is None else options.seed
    where = provenance()
    print("\n".join(f"{key}: {value}" for key, value in where.items()))
    policy = Policy(options.num_warmups, options.num_repeats, cold_l2=not options.noncu)
    results: list[Result] = []
    for d_head in options.d_heads:
        for seq_len in options.seq_lens:
            for dtype in options.dtypes:
                batch = BATCH_SIZE_FOR_SEQ_LEN[seq_len]
                heads = BENCHMARK_N_HEADS
                workload = Workload(batch, heads, heads, seq_len, d_head, dtype, seed)
                result = run_problem(Problem(workload, configs), policy)
                results.append(result)
                print(f"\n{table(result, options.top)}", flush=True)
    if options.json:
        rows = [row for result in results for row in result.as_json()]
        options.json.write_text(json.dumps({"provenance": where, "rows": rows}, indent=1) + "\n")
    return exit_code(results)


def exit_code(results: list[Result]) -> int:
    if any(row.status == "wrong" for result in results for row in result.rows):
        return 1
    measured = [row for result in results for row in result.rows if row.status == "ok"]
    if not any(row.is_ours for row in measured):
        return 4
    return 3 if any(row.status == "failed" for result in results for row in result.rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
