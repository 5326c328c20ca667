"""`AmpereServeKernelConfig`: every choice of the Ampere family's serving kernels that is fixed at
compile time.

The field order is a contract with csrc/include/flash/sm80_serve/config.h (tested).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..architecture import WARP_SIZE
from ..contract import Variant
from ..serve_config import ServeKernelConfig

WARP_ROWS = 16  # of one mma
FP32_BYTES = 4
FLAG_BYTES = 16
_PIECE_BYTES = 88


@dataclass(frozen=True, order=True)
class AmpereServeKernelConfig(ServeKernelConfig):
    """The serving kernels of the Ampere family: for prompts a tile of many rows, for new tokens one
    of few, whose warps share the keys."""

    FAMILY: ClassVar[str] = "sm80_serve"
    ARGUMENTS: ClassVar[str] = "flash::sm80_serve::ServeKernelArgs"
    WORD: ClassVar[str] = "ampere_serve"
    SYMBOL_START: ClassVar[str] = "flash_serve_sm80"
    LETTERS: ClassVar[dict[str, str]] = {
        "d_head": "d", "B_r": "r", "B_c": "c", "n_warps": "w", "n_stages": "s",
    }  # fmt: skip
    # Its instructions are all in sm_80, so the PTX is the same for every later GPU.
    PTX_ARCHITECTURE: ClassVar[str] = "compute_80"

    d_head: int
    B_r: int
    B_c: int
    n_warps: int
    n_stages: int

    def total_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        """Two matmuls of whole blocks, and per score a fused multiply-add, an exponential, a
        maximum and a sum."""
        scores = -(-seq_len // self.B_r) * self.B_r * -(-seq_len // self.B_c) * self.B_c
        return n_samples * n_heads * scores * (4 * self.d_head + 5)

    # Derived sizes, as in sm80_serve/config.h.

    def row_warps(self) -> int:
        """Warps with rows of their own."""
        return self.B_r // WARP_ROWS

    def key_warps(self) -> int:
        """Warps that share the keys of a block."""
        return self.n_warps // self.row_warps()

    def n_threads(self) -> int:
        return self.n_warps * WARP_SIZE

    def shares_keys(self) -> bool:
        return self.key_warps() > 1

    def d_v(self) -> int:
        """Elements of a value, at most."""
        return self.d_head

    def combining_blocks(self) -> int:
        """In which a thread has four columns of one row."""
        return max(1, self.B_r * self.d_v() // 4 // (self.n_warps * WARP_SIZE))

    def pieces_bytes(self) -> int:
        """Of what the warps know of the keys that are on their way."""
        return self.n_warps * (self.n_stages + 1) * _PIECE_BYTES if self.shares_keys() else 0

    def smem_bytes(self) -> int:
        row_bytes = self.d_head * self.dtype.bytes
        ring = self.B_r * row_bytes + self.n_stages * 2 * self.B_c * row_bytes
        lses = self.key_warps() * self.B_r * FP32_BYTES
        return ring + lses + FLAG_BYTES + self.pieces_bytes()

    def smem_of(self, variant: Variant) -> int:
        """Attention alone has shared memory."""
        return self.smem_bytes() if variant is Variant.SERVE else 0

    def min_blocks_per_sm(self) -> int:
        return 2 if self.n_warps <= 4 and self.smem_bytes() <= 113 * 1024 else 1

    def blocks(self) -> tuple[int, int]:
        return self.B_r, self.B_c
