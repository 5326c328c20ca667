"""Where each row of matmul_results.json stands under the roofline: by its operations and bytes.

    roofline.py matmul_results.json --peak 800 --bandwidth 4.3

The ceilings are what cuBLAS and a copy reached in the same run, unless given. Exit codes: 0 ok,
2 usage or a file that cannot be read, 4 no measured rows in it.
"""

import functools
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from flash_helpers.base.safe_read import parse_json, read_regular
from flash_helpers.base.text_table import text_table
from flash_helpers.base.tool import EXIT_NO_DATA, EXIT_OK, guarded, tool_parser

from ..arguments import number
from ..bench.row_fields import is_figure

Roof = tuple[float, float]  # TFLOP/s, TB/s


def roofline_parser(name: str, description: str) -> ArgumentParser:
    parser = tool_parser(name, description)
    parser.add_argument("results", type=Path, nargs="?", default=Path("matmul_results.json"))
    parser.add_argument("--peak", type=number(1e-6, 1e6), help="TFLOP/s")
    parser.add_argument("--bandwidth", type=number(1e-6, 1e6), help="TB/s")
    return parser


def read(parser: ArgumentParser, options: Namespace) -> tuple[list[dict[str, Any]], Roof]:
    """The rows that were measured, each with `intensity` (FLOP a byte), `roof` (TFLOP/s possible
    at that) and `part` of it; and the ceilings. Ends the process where the file is not one."""
    try:
        data = parse_json(read_regular(options.results))
        peak = options.peak or data["ceilings"]["peak_tflops"]
        bandwidth = options.bandwidth or data["ceilings"]["bandwidth_tb_s"]
        rows = [row for row in data["results"] if "ms" in row]
        figures = [
            peak,
            bandwidth,
            *(row[name] for row in rows for name in ("ms", "flop", "bytes")),
        ]
        if not all(is_figure(value) and value > 0 for value in figures):
            raise ValueError("a figure that is no positive number (without cuBLAS give --peak)")
        for row in rows:
            row["intensity"] = row["flop"] / row["bytes"]
            row["roof"] = min(peak, row["intensity"] * bandwidth)
            row["part"] = row["flop"] / row["ms"] / 1e9 / row["roof"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"{options.results}: {type(error).__name__}: {error}")
    return rows, (peak, bandwidth)


def main(argv: list[str] | None = None) -> int:
    parser = roofline_parser("roofline.py", __doc__ or "")
    rows, (peak, bandwidth) = read(parser, parser.parse_args(argv))
    lines = [
        ("x".join(map(str, row["shape"])), row["version"], f"{row['intensity']:.1f}",
         f"{row['flop'] / row['ms'] / 1e9:.1f}", f"{row['roof']:.1f}", f"{row['part']:.1%}",
         "compute" if row["roof"] == peak else "memory")
        for row in rows
    ]  # fmt: skip
    columns = ("Shape", "Version", "FLOP/byte", "TFLOP/s", "roof", "of the roof", "bound by")
    print(f"ceilings: {peak:.1f} TFLOP/s, {bandwidth:.2f} TB/s")
    print(text_table(columns, lines, words=("Shape", "Version", "bound by")))
    if not rows:
        print("roofline.py: no measured rows", file=sys.stderr)
    return EXIT_OK if rows else EXIT_NO_DATA


command = functools.partial(guarded, "roofline.py", main)
