"""Rows as a sweep makes them, with times that are known."""

from __future__ import annotations

from typing import Any

from flash_lab.bench.results import ProblemResult, by_problem
from flash_lab.bench.row import Row
from tests.ws_analysis.fake_backend import PARAMETERS, RESOURCES


def row(provider: str, n_ctx: int, times: list[float], **more: Any) -> dict[str, Any]:
    shape = {
        "dtype": "FP16", "batch": 1, "n_heads": 32, "n_kv_heads": 32, "seq_len": n_ctx,
        "d_head": 128, "seed": 1, "causal": False,
    }  # fmt: skip
    return {
        "status": "ok", "provider": provider, "kernel": provider, "label": provider, "error": "",
        "shape": shape, "samples_ms": times, "bursts": [1] * len(times), "environment": {},
        "memory_bytes": 2 * 10**7, "parameters": PARAMETERS, **RESOURCES, **more,
    }  # fmt: skip


def problems(*rows: dict[str, Any]) -> list[ProblemResult]:
    return by_problem(map(Row.from_json, rows))
