"""`AmpereBackwardKernelConfig`: every choice of one backward pass of the Ampere family that is
fixed at compile time.

The field order is a contract with csrc/include/flash/sm80_bwd/config.h (tested). The class
renders a configuration in its spellings; names.py reads them back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...base.dtypes import DType
from ..architecture import WARP_SIZE
from ..backward_args import ROW_STATS_FLOATS
from ..backward_config import BackwardKernelConfig
from ..contract import Variant

N_STAGES = 2  # blocks that pass by: one is computed, one comes
DOTS_THREADS = 128
FP32_BYTES = 4

WORD = "ampere_backward"


@dataclass(frozen=True, order=True)
class AmpereBackwardKernelConfig(BackwardKernelConfig):
    """One backward pass of the Ampere family. Of each of its two large kernels: rows that stay with
    a thread block, columns of a block that passes by, and warps."""

    FAMILY: ClassVar[str] = "sm80_bwd"
    ARGUMENTS: ClassVar[str] = "flash::sm80_bwd::BackwardKernelArgs"
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

    def short_form(self) -> str:
        """`(FP16, 128, 128, 64, 8, 128, 64, 8): ampere_backward`: dtype, d_head, and rows, columns
        and warps of the kernels of dK and dV, and of dQ."""
        shapes = ", ".join(map(str, (*self.shape(Variant.KEYS), *self.shape(Variant.QUERIES))))
        return f"({self.dtype.name}, {self.d_head}, {shapes}): {WORD}"

    def kernel_name(self) -> str:
        words = ["flash_bwd_sm80", self.dtype.name.lower(), f"d{self.d_head}"]
        for letter, variant in (("k", Variant.KEYS), ("q", Variant.QUERIES)):
            rows, columns, warps = self.shape(variant)
            words.append(f"{letter}{rows}x{columns}w{warps}")
        return "_".join(words)

    def total_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        """Seven matmuls, with every block whole, and per score two fused multiply-adds, an
        exponential, a subtraction and a product in each kernel."""
        flop = 0
        for variant, matmuls in ((Variant.KEYS, 4), (Variant.QUERIES, 3)):
            rows, columns, _ = self.shape(variant)
            scores = -(-seq_len // rows) * rows * -(-seq_len // columns) * columns
            flop += scores * (2 * matmuls * self.d_head + 7)
        return n_samples * n_heads * flop

    # Derived sizes, as in sm80_bwd/config.h.

    def shape(self, variant: Variant) -> tuple[int, int, int]:
        """Rows, columns, warps."""
        if variant is Variant.QUERIES:
            return self.queries_rows, self.queries_columns, self.queries_warps
        return self.keys_rows, self.keys_columns, self.keys_warps

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

    def dots_rows(self) -> int:
        return DOTS_THREADS // (8 if self.d_head % 64 == 0 else 4)

    def rows(self, variant: Variant) -> int:
        return self.shape(variant)[0]

    def blocks(self) -> tuple[int, int]:
        """Of the kernel of dK and dV."""
        return self.keys_columns, self.keys_rows
