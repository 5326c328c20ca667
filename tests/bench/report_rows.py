"""Rows for tests of the report: those of the recorded sweep, and made-up ceilings."""

from __future__ import annotations

import functools
import lzma
from dataclasses import replace
from pathlib import Path

from flash_lab.bench.records import decode
from flash_lab.bench.row import Row

ROOT = Path(__file__).resolve().parents[2]
SWEEP = ROOT / "docs/results/raw/2026-11-20-h200-tune-sweep.jsonl.xz"


@functools.cache
def recorded_rows() -> tuple[Row, ...]:
    lines = lzma.decompress(SWEEP.read_bytes()).splitlines()
    return tuple(row for row in map(decode, lines) if row.status != "started")


def ceiling_rows(like: Row, dtype: str = "FP16", tflops: float = 700.0) -> list[Row]:
    """A matmul of 4096 at `tflops`, a slower one, and a copy at 4 TB/s; otherwise as `like`."""
    done = {"matmul 4096": {"flop": 2 * 4096**3}, "matmul 8192": {"flop": 2 * 8192**3},
            "copy 1024 MiB": {"bytes": 2 << 30}}  # fmt: skip
    rows = []
    for kernel, work in done.items():
        ms = work["flop"] / tflops / 1e9 if "flop" in work else work["bytes"] / 4e9
        ms *= 1.1 if kernel == "matmul 8192" else 1.0
        shape = {"dtype": dtype, "seed": 1, "kind": "ceiling"}
        rows.append(
            replace(
                like,
                provider="ceiling",
                kernel=kernel,
                shape=shape,
                status="ok",
                key=f"{dtype} {kernel}",
                samples_ms=[ms, ms, ms, 3 * ms],
                bursts=[2, 2],
                throttled={},
                error="",
                flop=work.get("flop"),
                bytes=work.get("bytes"),
            )
        )
    return rows
