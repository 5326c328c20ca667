"""`AmpereServeBackwardKernelConfig`: the fields of the other backward pass, whose C++ struct it
shares, for kernels that serve: sequences of different lengths, windows and soft caps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..backward_config import Sizes
from ..contract import Variant
from ..sm80_bwd.config import AmpereBackwardKernelConfig


@dataclass(frozen=True, order=True)
class AmpereServeBackwardKernelConfig(AmpereBackwardKernelConfig):
    """One backward pass of the Ampere family that serves."""

    FAMILY: ClassVar[str] = "sm80_bwd_serve"
    WORD: ClassVar[str] = "ampere_serve_backward"
    ARGUMENTS: ClassVar[str] = "flash::sm80_bwd_serve::BackwardKernelArgs"
    SERVES: ClassVar[bool] = True
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = (64, 96, 128, 192, 256)

    @classmethod
    def symbol_start(cls) -> str:
        return "flash_bwd_serve_sm80"

    def grid(self, variant: Variant, sizes: Sizes) -> int:
        """Packed sequences are one of as many rows, and each may begin a block more."""
        if not sizes.packed:
            return super().grid(variant, sizes)
        if variant is Variant.DOTS:
            return super().grid(variant, sizes.as_one())
        of_keys = variant is Variant.KEYS
        n_rows = sizes.seqlen_k if of_keys else sizes.seqlen_q
        heads = sizes.n_heads_kv if of_keys else sizes.n_heads_q
        return (n_rows // self.rows(variant) + sizes.batch) * heads if n_rows else 0
