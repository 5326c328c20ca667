"""`HopperBackwardKernelConfig`: every choice of one backward pass of the Hopper family that is
fixed at compile time.

The field order is a contract with csrc/include/flash/sm90_bwd/config.h (tested).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...base.dtypes import DType
from ..backward_args import ROW_STATS_FLOATS
from ..backward_config import DOTS_THREADS, BackwardKernelConfig
from ..contract import Variant

GROUP_ROWS = 64  # rows of one wgmma, and so of one consumer warpgroup
GROUP_THREADS = 128
FP32_BYTES = 4


@dataclass(frozen=True, order=True)
class HopperBackwardKernelConfig(BackwardKernelConfig):
    """One backward pass of the Hopper family. Of each of its two large kernels: rows that stay with
    a thread block, 64 for each warpgroup that multiplies; columns of a block that passes by; and
    stages, such blocks in shared memory."""

    FAMILY: ClassVar[str] = "sm90_bwd"
    WORD: ClassVar[str] = "hopper_backward"
    ARGUMENTS: ClassVar[str] = "flash::sm90_bwd::BackwardKernelArgs"
    PTX_ARCHITECTURE: ClassVar[str] = "compute_90a"

    dtype: DType
    d_head: int
    keys_rows: int
    keys_columns: int
    keys_stages: int
    queries_rows: int
    queries_columns: int
    queries_stages: int

    # Derived sizes, as in sm90_bwd/config.h.

    def row_bytes(self) -> int:
        return self.d_head * self.dtype.bytes

    def groups(self, variant: Variant) -> int:
        """Consumer warpgroups."""
        return self.rows(variant) // GROUP_ROWS * (2 if self.splits_sums(variant) else 1)

    def splits_sums(self, variant: Variant) -> bool:
        """Whether two groups have the same keys, one for dV, and one for dK, which gets the weights
        from the first: for both sums a thread has too few registers."""
        return variant is Variant.KEYS and self.d_head > 128

    def second_stages(self, variant: Variant) -> int:
        """Blocks of the second tensor that passes by: V is read early in a step, and needs one
        less."""
        return self.shape(variant)[2] - (1 if variant is Variant.QUERIES else 0)

    def threads_of(self, variant: Variant) -> int:
        if variant is Variant.DOTS:
            return DOTS_THREADS
        return (self.groups(variant) + 1) * GROUP_THREADS

    def smem_of(self, variant: Variant) -> int:
        """The rows that stay, those that pass by (with their RowStats if they are queries), weights
        that one group hands to the other, and barriers."""
        if variant is Variant.DOTS:
            return 0
        rows, columns, stages = self.shape(variant)
        stats = 0 if variant is Variant.QUERIES else columns * ROW_STATS_FLOATS * FP32_BYTES
        blocks = stages + self.second_stages(variant)
        n_rows = 2 * rows + blocks * columns
        handed_on = 0
        if self.splits_sums(variant):
            handed_on = 2 * (GROUP_ROWS * columns * FP32_BYTES + 8 * 2) + 8
        return n_rows * self.row_bytes() + stages * stats + 8 * (2 + 2 * blocks) + handed_on

    def min_blocks_per_sm(self, variant: Variant = Variant.KEYS) -> int:
        return 8 if variant is Variant.DOTS else 1

    def swizzle_bytes(self) -> int:
        """The shared-memory row of a tile, and the mode of its swizzle."""
        return 128 if self.row_bytes() % 128 == 0 else 64
