"""`FusedServeBackwardKernelConfig`: the fields of the other fused backward pass, whose C++ struct
it shares, for kernels that serve: sequences of different lengths, and windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..backward_args import packed_stats_rows
from ..backward_config import Sizes
from ..contract import Variant
from ..sm90_bwd_fused.config import FusedBackwardKernelConfig

# Shorter sequences leave most of a block of keys idle: 512 of 64 rows took 1.5 times the Ampere
# family's time on an H200 (d 128), 64 of 512 rows 0.5 to 0.7 times (docs/results/serving-h200.md).
LEAST_MEAN_ROWS = 128


@dataclass(frozen=True, order=True)
class FusedServeBackwardKernelConfig(FusedBackwardKernelConfig):
    """One fused backward pass of the Hopper family that serves."""

    FAMILY: ClassVar[str] = "sm90_bwd_fused_serve"
    WORD: ClassVar[str] = "fused_serve_backward"
    ARGUMENTS: ClassVar[str] = "flash::sm90_bwd_fused_serve::BackwardKernelArgs"
    SERVES: ClassVar[bool] = True

    @classmethod
    def symbol_start(cls) -> str:
        return "flash_bwd_serve_sm90"

    def refusal(self, beside: Sequence[str], mean_rows: float = math.inf) -> str | None:
        if beside:
            return f"its kernels take no {' and '.join(beside)}"
        if mean_rows < LEAST_MEAN_ROWS:
            return f"it takes packed sequences of {LEAST_MEAN_ROWS} queries or more, on average"
        return None

    def needs_heads_together(self) -> bool:
        return True

    def stats_rows(self, sizes: Sizes) -> int:
        """Packed sequences have whole blocks each."""
        if not sizes.packed:
            return super().stats_rows(sizes)
        return packed_stats_rows(sizes.seqlen_q, sizes.batch)

    def head_splits(self, sizes: Sizes) -> int:
        return 1

    def grid(self, variant: Variant, sizes: Sizes) -> int:
        """Packed sequences are one of as many rows, and each may begin a block more."""
        if variant is Variant.KEYS:
            if not sizes.packed or not sizes.seqlen_k:
                return super().grid(variant, sizes)
            return (sizes.seqlen_k // self.keys_rows + sizes.batch) * sizes.n_heads_kv
        rows = self.dots_rows() if variant is Variant.DOTS else self.keys_columns
        batch = 1 if sizes.packed else sizes.batch
        return self.stats_rows(sizes) // rows * sizes.n_heads_q * batch
