"""Rows for tests of the report: those of the recorded sweep, and made-up ceilings."""

from __future__ import annotations

import lzma
from pathlib import Path

from flash_lab.bench.records import Record, decode

ROOT = Path(__file__).resolve().parents[2]
SWEEP = ROOT / "docs/results/raw/2026-11-20-h200-tune-sweep.jsonl.xz"


def recorded_rows() -> list[Record]:
    lines = lzma.decompress(SWEEP.read_bytes()).splitlines()
    rows = [decode(line) for line in lines]
    return [row for row in rows if row["status"] != "started"]


def ceiling_rows(like: Record, dtype: str = "FP16", tflops: float = 700.0) -> list[Record]:
    """A matmul of 4096 at `tflops`, a slower one, and a copy at 4 TB/s; otherwise as `like`."""
    done = {"matmul 4096": {"flop": 2 * 4096**3}, "matmul 8192": {"flop": 2 * 8192**3},
            "copy 1024 MiB": {"bytes": 2 << 30}}  # fmt: skip
    rows = []
    for kernel, work in done.items():
        ms = work["flop"] / tflops / 1e9 if "flop" in work else work["bytes"] / 4e9
        ms *= 1.1 if kernel == "matmul 8192" else 1.0
        shape = {"dtype": dtype, "seed": 1, "kind": "ceiling"}
        rows.append(
            {**like, "provider": "ceiling", "kernel": kernel, "shape": shape, "status": "ok",
             "key": f"{dtype} {kernel}", "samples_ms": [ms, ms, ms, 3 * ms], "bursts": [2, 2],
             "throttled": {}, "error": "", **work}
        )  # fmt: skip
    return rows
