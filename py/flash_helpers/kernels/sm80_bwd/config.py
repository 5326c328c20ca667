"""`AmpereBackwardKernelConfig`: every choice of one backward pass of the Ampere family that is
fixed at compile time.

The field order is a contract with csrc/include/flash/sm80_bwd/config.h (tested).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...base.dtypes import DType
from ..architecture import WARP_SIZE
from ..backward_args import ROW_STATS_FLOATS
from ..backward_config import DOTS_THREADS, BackwardKernelConfig
from ..contract import Variant

N_STAGES = 2  # blocks that pass by: one is computed, one comes
FP32_BYTES = 4


@dataclass(frozen=True, order=True)
class AmpereBackwardKernelConfig(BackwardKernelConfig):
    """One backward pass of the Ampere family. Of each of its two large kernels: rows that stay with
    a thread block, columns of a block that passes by, and warps."""

    FAMILY: ClassVar[str] = "sm80_bwd"
    WORD: ClassVar[str] = "ampere_backward"
    ARGUMENTS: ClassVar[str] = "flash::sm80_bwd::BackwardKernelArgs"
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = (64, 96, 128, 192, 256)
    # Its instructions are all in sm_80, so the PTX is the same for every later GPU.
    PTX_ARCHITECTURE: ClassVar[str] = "compute_80"

    dtype: DType
    d_head: int
    keys_rows: int
    keys_columns: int
    keys_warps: int
    queries_rows: int
    queries_columns: int
    queries_warps: int

    # Derived sizes, as in sm80_bwd/config.h.

    def sums_in_turn(self) -> bool:
        """Whether dV, and then dK, is summed: both are too much for a warp's registers."""
        return self.d_head > 128

    def n_matmuls(self, variant: Variant) -> int:
        again = variant is Variant.KEYS and self.sums_in_turn()
        return super().n_matmuls(variant) + again

    def threads_of(self, variant: Variant) -> int:
        return DOTS_THREADS if variant is Variant.DOTS else self.shape(variant)[2] * WARP_SIZE

    def smem_of(self, variant: Variant) -> int:
        if variant is Variant.DOTS:
            return 0
        rows, columns, _ = self.shape(variant)
        stats = 0 if variant is Variant.QUERIES else columns * ROW_STATS_FLOATS * FP32_BYTES
        row_bytes = self.d_head * self.dtype.bytes
        return 2 * rows * row_bytes + N_STAGES * (2 * columns * row_bytes + stats)

    def min_blocks_per_sm(self, variant: Variant = Variant.KEYS) -> int:
        if variant is Variant.DOTS:
            return 8
        return 2 if self.shape(variant)[2] <= 4 else 1
