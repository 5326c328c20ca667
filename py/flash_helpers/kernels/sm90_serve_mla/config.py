"""`HopperMlaKernelConfig`: every choice of the Hopper family's serving kernels for MLA that is
fixed at compile time.

The field order is a contract with csrc/include/flash/sm90_serve_mla/config.h (tested).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..architecture import WARP_SIZE
from ..serve_config import ServeSizes
from ..sm80_serve.config import FLAG_BYTES, FP32_BYTES
from ..sm80_serve_mla.config import AmpereMlaKernelConfig

LEAST_PART_ROWS = 8  # keys that one copy takes of a page
LEAST_ROWS = 64  # of a sequence: below, most of a tile would be idle
_GROUP_WARPS = 4  # of a warpgroup
_STATE_BYTES = 160  # of a warp
_BARRIER_BYTES = 8


@dataclass(frozen=True, order=True)
class HopperMlaKernelConfig(AmpereMlaKernelConfig):
    """The serving kernels of the Hopper family for a latent cache, with TMA and wgmma: the fields
    of the Ampere family's, of which `n_warps` are those that compute. A further one copies."""

    FAMILY: ClassVar[str] = "sm90_serve_mla"
    ARGUMENTS: ClassVar[str] = "flash::sm90_serve_mla::ServeKernelArgs"
    WORD: ClassVar[str] = "hopper_mla"
    SYMBOL_START: ClassVar[str] = "flash_mla_sm90"
    PTX_ARCHITECTURE: ClassVar[str] = "compute_90a"

    def refusal(self, sizes: ServeSizes) -> str | None:
        heads = sizes.n_heads_q // sizes.n_heads_kv
        # Where the result must not depend on the batch, neither may the kernel.
        rows = heads * (1 if sizes.is_fixed else -(-sizes.n_rows // max(sizes.batch, 1)))
        if rows < LEAST_ROWS:
            return f"it takes sequences of {LEAST_ROWS} rows (query heads) or more, on average"
        if sizes.page_size % LEAST_PART_ROWS:
            return f"it takes pages of a multiple of {LEAST_PART_ROWS} keys"
        return None

    def part_rows(self, page_size: int) -> int:
        """Keys of one copy out of a page."""
        return math.gcd(page_size, self.B_c)

    def n_threads(self) -> int:
        return (self.n_warps + _GROUP_WARPS) * WARP_SIZE

    def smem_bytes(self) -> int:
        rows = self.B_r + self.n_stages * self.B_c
        weights = self.B_r * self.B_c * self.dtype.bytes
        told = self.B_r * 3 * FP32_BYTES
        state = (self.n_warps + _GROUP_WARPS) * _STATE_BYTES + FLAG_BYTES
        barriers = (4 * self.n_stages + 3) * _BARRIER_BYTES
        return rows * self.d_head * self.dtype.bytes + weights + told + state + barriers
