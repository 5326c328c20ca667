"""`AmpereMlaKernelConfig`: every choice of the Ampere family's serving kernels for MLA that is
fixed at compile time.

The field order is a contract with csrc/include/flash/sm80_serve_mla/config.h (tested).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..contract import Variant
from ..serve_config import ROTATED_OF_LATENT, ServeSizes
from ..sm80_serve.config import FLAG_BYTES, FP32_BYTES, AmpereServeKernelConfig

# Rows of a tile up to which queries stay in registers, and two warps share the depth of scores.
_MOST_KEPT_ROWS = 16
_GIVEN_BYTES = 16  # by a thread
_STATE_BYTES = 16  # of a warp


@dataclass(frozen=True, order=True)
class AmpereMlaKernelConfig(AmpereServeKernelConfig):
    """The serving kernels of the Ampere family for a latent cache: the fields of its others, of
    which `d_head` is the elements of a key. The first `d_v()` are its value."""

    FAMILY: ClassVar[str] = "sm80_serve_mla"
    ARGUMENTS: ClassVar[str] = "flash::sm80_serve_mla::ServeKernelArgs"
    WORD: ClassVar[str] = "ampere_mla"
    SYMBOL_START: ClassVar[str] = "flash_mla_sm80"

    def d_v(self) -> int:
        return self.d_head - ROTATED_OF_LATENT

    def total_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        rows, keys = (-(-seq_len // size) * size for size in self.blocks())
        return n_samples * n_heads * rows * keys * (2 * self.d_head + 2 * self.d_v() + 5)

    def variants(self) -> tuple[Variant, ...]:
        return Variant.APPEND, Variant.SERVE, Variant.COMBINE

    def shares_keys(self) -> bool:
        """But for a number of splits that is given."""
        return True

    def outputs(self, variant: Variant, n_splits: int) -> tuple[str, ...]:
        return ("o", "lse") if variant is Variant.COMBINE else super().outputs(variant, n_splits)

    def smem_bytes(self) -> int:
        keeps_queries = self.B_r <= _MOST_KEPT_ROWS
        rows = (0 if keeps_queries else self.B_r) + self.n_stages * self.B_c
        weights = self.B_r * self.B_c * self.dtype.bytes
        stats = self.B_r * self.key_warps() * FP32_BYTES
        given = self.n_threads() * _GIVEN_BYTES if keeps_queries else 0
        state = self.n_warps * _STATE_BYTES + self.pieces_bytes()
        rest = weights + given + stats + state + FLAG_BYTES
        return rows * self.d_head * self.dtype.bytes + rest

    def min_blocks_per_sm(self) -> int:
        return 1

    def scratch(self, sizes: ServeSizes) -> dict[str, int]:
        found = super().scratch(sizes)
        if "o_partial" in found:
            found["o_partial"] = found["o_partial"] // self.d_head * self.d_v()
        return found
