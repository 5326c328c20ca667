"""The bench's backend without a GPU, with what a row of a warp-specialised kernel says more."""

from __future__ import annotations

import json
import os
from typing import Any

from flash_lab.ws_analysis.providers import WS_PROVIDERS
from tests.bench.fake_backend import FakeBackend, FakeCandidate

PARAMETERS = {
    "BLOCK_M": 128, "BLOCK_N": 128, "NUM_BUFFERS": 2, "NUM_MMA_WARPS": 8, "NUM_MMA_GROUPS": 2,
    "num_warps": 4, "num_stages": 0,
}  # fmt: skip
RESOURCES = {
    "registers": 168, "spilled_bytes": 0, "blocks_per_sm": 1, "shared_bytes": 163840,
    "threads": 384,
}  # fmt: skip
CHANGED: dict[str, int] = json.loads(os.environ.get("FAKE_RESOURCES", "{}"))


class WsCandidate(FakeCandidate):
    def describe(self) -> dict[str, Any]:
        found = super().describe()
        if self.provider in WS_PROVIDERS:
            found |= {"parameters": PARAMETERS, "tuned": "autotuned", **RESOURCES, **CHANGED}
        return found


class WsFakeBackend(FakeBackend):
    def environment(self) -> dict[str, Any]:
        return super().environment() | {"gpu_sms": 132, "top_sm_clock": "1980 MHz"}

    def candidate(self, provider: str, kernel: str) -> FakeCandidate:
        super().candidate(provider, kernel)  # raises for what is absent
        return WsCandidate(provider, kernel, self.seq_len)
