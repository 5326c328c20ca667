"""`AmpereFusedBackwardKernelConfig`: every choice of one fused backward pass of the Ampere family
that is fixed at compile time.

The field order is a contract with csrc/include/flash/sm80_bwd_fused/config.h (tested).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...base.dtypes import DType
from ..architecture import WARP_SIZE
from ..backward_args import ROW_STATS_FLOATS
from ..backward_config import DOTS_THREADS, BackwardKernelConfig, Sizes
from ..contract import Variant

N_STAGES = 2  # blocks that pass by: one is computed, one comes
DS_BLOCKS = 2  # one is written while dQ is made of the other
BARRIER_BYTES = 2 * 8  # two of all threads
FP32_BYTES = 4


@dataclass(frozen=True, order=True)
class AmpereFusedBackwardKernelConfig(BackwardKernelConfig):
    """One fused backward pass of the Ampere family: keys that stay with a thread block, queries of
    a block that passes by, and warps."""

    FAMILY: ClassVar[str] = "sm80_bwd_fused"
    WORD: ClassVar[str] = "ampere_fused_backward"
    ARGUMENTS: ClassVar[str] = "flash::sm80_bwd_fused::BackwardKernelArgs"
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = (64, 128)
    SHAPES: ClassVar[tuple[Variant, ...]] = (Variant.KEYS,)
    # Its instructions are all in sm_80, so the PTX is the same for every later GPU.
    PTX_ARCHITECTURE: ClassVar[str] = "compute_80"

    dtype: DType
    d_head: int
    keys_rows: int
    keys_columns: int
    keys_warps: int

    # Derived sizes, as in sm80_bwd_fused/config.h.

    def n_matmuls(self, variant: Variant) -> int:
        return 5

    def variants(self) -> tuple[Variant, ...]:
        return Variant.DOTS, Variant.KEYS, Variant.ROUND

    def outputs(self, variant: Variant) -> tuple[str, ...]:
        """The sums of dQ are cleared by the first kernel and added up by the second."""
        found = super().outputs(variant)
        return found if variant is Variant.ROUND else (*found, "d_q_sums")

    def scratch(self) -> tuple[str, ...]:
        return (*super().scratch(), "d_q_sums")

    def is_deterministic(self) -> bool:
        return False

    def grid(self, variant: Variant, sizes: Sizes) -> int:
        if variant is not Variant.ROUND:
            return super().grid(variant, sizes)
        blocks = -(-sizes.seqlen_q // self.keys_columns)
        return blocks * sizes.n_heads_q * sizes.batch

    def threads_of(self, variant: Variant) -> int:
        return DOTS_THREADS if variant is Variant.DOTS else self.keys_warps * WARP_SIZE

    def smem_of(self, variant: Variant) -> int:
        """Of the large kernel: K and V, in each stage Q, dO and their RowStats, P, two blocks of
        dS, and barriers."""
        if variant is Variant.DOTS:
            return 0
        row_bytes = self.d_head * self.dtype.bytes
        if variant is Variant.ROUND:
            return self.keys_columns * row_bytes
        stats = self.keys_columns * ROW_STATS_FLOATS * FP32_BYTES
        stage = 2 * self.keys_columns * row_bytes + stats
        weights = self.keys_rows * self.keys_columns * self.dtype.bytes
        own = 2 * self.keys_rows * row_bytes
        return own + N_STAGES * stage + (1 + DS_BLOCKS) * weights + BARRIER_BYTES

    def min_blocks_per_sm(self, variant: Variant = Variant.KEYS) -> int:
        return {Variant.DOTS: 8, Variant.ROUND: 4}.get(variant, 1)
