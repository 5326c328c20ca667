"""Time the versions of the product of matrices, and cuBLAS, in turns on one GPU.

    benchmark_matmul.py --shapes 4096x4096x4096,8192x8192x8192 --dtype bfloat16

Writes matmul_results.json and prints a table. L2 hits and the traffic of the memory are what ncu
counts (ncu_bench.py): their columns stay empty. Exit codes: 0 ok, 1 a result was wrong, 2 usage,
3 some version does not run, 4 no data, 130 interrupted.
"""

import argparse
import functools
import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from flash_attention import operators
from flash_attention.triton_kit.launched import Launched, noted
from flash_helpers.base import tool
from flash_helpers.base.outputs import check_outputs, write_output
from flash_helpers.base.text_table import text_table
from flash_helpers.base.timing import CudaTimer, Timer

from ..arguments import list_of
from ..bench.records import LAUNCH_FAIL, OK, WRONG, head
from ..provenance import provenance
from ..waves.occupancy import LIMITS, occupancy
from .benchmark import benchmark_kernel, benchmark_kernels
from .environment import checks

Shape = tuple[int, int, int]  # M, N, K
# Each with what it computes: the product, or SiLU(product + bias).
Versions = dict[str, tuple[Callable[[], torch.Tensor], torch.Tensor]]
Json = dict[str, Any]
CUBLAS = "cublas"
_KEYWORDS = {
    "v0": "direct", "v1": "tiled", "v2": "pipelined", "v_auto": "tuned", "v5": "persistent",
}  # fmt: skip
NAMES = (*_KEYWORDS, "v4", CUBLAS)
DTYPES = ("float16", "bfloat16", "float32")
COLUMNS = (
    "Shape", "Version", "Gflops", "Registers/Thread", "Occupancy", "L2 Hit", "DRAM BW", "Notes",
)  # fmt: skip
COPIED = 2**28  # bytes: far more than any L2 cache


def shape_list(text: str) -> list[Shape]:
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){2}(,[1-9]\d*(x[1-9]\d*){2})*", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected MxNxK, or several with commas")
    found = (tuple(map(int, one.split("x"))) for one in text.split(","))
    return [(m, n, k) for m, n, k in dict.fromkeys(found)]


def versions(shape: Shape, dtype: torch.dtype, device: str) -> Versions:
    """Calls on the same random matrices, by version."""
    m, n, k = shape
    chance = torch.Generator(device).manual_seed(0)
    draw = partial(torch.randn, generator=chance, dtype=dtype, device=device)
    a, b, bias = draw(m, k), draw(k, n), draw(n)
    product = a.float() @ b.float()
    fused = partial(operators.matmul, a, b, bias=bias, activation="silu")
    return {
        **{v: (partial(operators.matmul, a, b, version=w), product) for v, w in _KEYWORDS.items()},
        "v4": (fused, F.silu(product + bias.float())),
        CUBLAS: (partial(torch.matmul, a, b), product),
    }


def measure(shape: Shape, dtype: str, found: Versions, timer: Timer) -> list[Json]:
    """A row of each version: one that does not run, or is wrong, is not timed."""
    m, n, k = shape
    rows: dict[str, Json] = {
        name: {"shape": list(shape), "dtype": dtype, "version": name} for name in found
    }
    for name, (call, expected) in found.items():
        try:
            with noted() as launches:
                problem = problem_with(call(), expected, k)
            rows[name] |= {"status": WRONG if problem else OK, "notes": problem}
        except Exception as error:  # of the compiler, the driver, or a refusal of the version
            problem = head(f"{type(error).__name__}: {error}")
            rows[name] |= {"status": LAUNCH_FAIL, "notes": problem}
        rows[name] |= resources(launches)
    running = {name: found[name][0] for name, row in rows.items() if row["status"] == OK}
    flop, n_bytes = 2 * m * n * k, getattr(torch, dtype).itemsize * (m * k + k * n + m * n)
    for name, times in (benchmark_kernels(running, timer=timer) if running else {}).items():
        ms, notes = times["p50"], "" if times["steady"] else f"rsd {times['rsd']:.0%}"
        rows[name] |= {
            "ms": ms, "flop": flop, "bytes": n_bytes, "gflops": flop / ms / 1e6,
            "effective_gb_s": n_bytes / ms / 1e6, "times": times, "notes": notes,
        }  # fmt: skip
    return list(rows.values())


def problem_with(found: torch.Tensor, expected: torch.Tensor, k: int) -> str:
    """Empty if no element is off by more than two roundings of the largest one, or the sum of k."""
    eps = 2 * torch.finfo(found.dtype).eps, math.sqrt(k) * torch.finfo(torch.float32).eps
    allowed = max(eps) * float(expected.abs().max())
    off = float((found.float() - expected).abs().max())
    return "" if off <= allowed else f"off by {off:.3g}: {allowed:.3g} is allowed"


def resources(launches: Sequence[Launched]) -> Json:
    """Of the last kernel that Triton launched; empty where nothing is known, as of cuBLAS."""
    kernel = launches[-1].kernel if launches else None
    registers = getattr(kernel, "n_regs", None)
    if kernel is None or registers is None:
        return {}
    given, found = kernel.metadata, {"registers": registers}
    if (arch := divmod(given.target.arch, 10)) in LIMITS:
        blocks = occupancy(arch, 32 * given.num_warps, registers, given.shared)
        found["occupancy"] = blocks.occupancy
    return found


def table(rows: Sequence[Json]) -> str:
    """The operator book's; what only ncu counts is `-`."""
    return text_table(COLUMNS, [
        ("x".join(map(str, row["shape"])), row["version"],
         f"{row['gflops']:.0f}" if "gflops" in row else row["status"], row.get("registers", "-"),
         f"{row['occupancy']:.0%}" if "occupancy" in row else "-", "-", "-", row["notes"])
        for row in rows
    ], words=("Shape", "Version", "Notes"))  # fmt: skip


def ceilings(rows: Sequence[Json], device: str, timer: Timer) -> Json:
    """TFLOP/s of cuBLAS, null where it was not measured, and TB/s of a copy."""
    source = torch.empty(COPIED, dtype=torch.int8, device=device)
    ms = benchmark_kernel(torch.empty_like(source).copy_, source, timer=timer)["p50"]
    peaks = [row["gflops"] / 1e3 for row in rows if row["version"] == CUBLAS and "ms" in row]
    return {"peak_tflops": max(peaks, default=None), "bandwidth_tb_s": 2 * COPIED / ms / 1e9}


def main(
    argv: Sequence[str] | None = None, timer: Timer | None = None,
    make: Callable[[Shape, torch.dtype, str], Versions] = versions,
) -> int:  # fmt: skip
    parser = tool.tool_parser("benchmark_matmul.py", __doc__ or "")
    add, squares = parser.add_argument, [(n, n, n) for n in (1024, 2048, 4096, 8192)]
    add("--shapes", type=shape_list, default=squares, help="MxNxK,... (default: four squares)")
    add("--dtype", choices=DTYPES, default=DTYPES[0])
    add("--versions", type=list_of("version", NAMES), default=list(NAMES), help=", ".join(NAMES))
    add("--out", type=Path, default=Path("matmul_results.json"))
    options = parser.parse_args(argv)
    check_outputs({"--out": options.out})
    print(*(seen := checks()), sep="\n")
    if any(check.fatal for check in seen):
        parser.error("nothing is timed here: see above")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if timer is None and device == "cpu":
        print("benchmark_matmul.py: no GPU", file=sys.stderr)
        return tool.EXIT_NO_DATA
    timer = timer or CudaTimer(torch.device(device), cold_l2=False)
    rows: list[Json] = []
    for shape in options.shapes:
        found = make(shape, getattr(torch, options.dtype), device)
        rows += measure(shape, options.dtype, {v: found[v] for v in options.versions}, timer)
    print(table(rows))
    result = {
        "environment": provenance(), "checks": [str(check) for check in seen],
        "ceilings": ceilings(rows, device, timer), "results": rows,
    }  # fmt: skip
    write_output(options.out, json.dumps(result, indent=1) + "\n")
    statuses = {row["status"] for row in rows}
    if WRONG in statuses:
        return tool.EXIT_FAILED
    partial_code = tool.EXIT_PARTIAL if len(statuses) > 1 else tool.EXIT_OK
    return partial_code if OK in statuses else tool.EXIT_NO_DATA


command = functools.partial(tool.guarded, "benchmark_matmul.py", main)
