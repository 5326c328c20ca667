"""`FlashForwardKernelConfig`: every choice of one kernel of the Ampere family that is fixed at
compile time.

The field order is a contract with csrc/include/flash/sm80/config.h (tested). The class
renders a configuration in its spellings; names.py reads them back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...base.dtypes import DType
from ..contract import KernelConfig, Variant, whole_blocks_violation
from ..flops import calc_total_flop

GENERAL_SUFFIX = "_general"

SHORT_FLAGS_BEFORE_LOAD = (
    ("async_copy", "async"),
    ("eager_load_blocks", "eager"),
    ("swizzled", "swizzled"),
)
SHORT_FLAGS_AFTER_LOAD = (
    ("mma_double_buffer_loads", "buffer"),
    ("optimized_softmax", "opt_softmax"),
)


@dataclass(frozen=True, order=True)
class FlashForwardKernelConfig(KernelConfig):
    """One kernel of the Ampere family."""

    FAMILY: ClassVar[str] = "sm80"
    ARGUMENTS: ClassVar[str] = "flash::sm80::ForwardKernelArgs"
    # Its instructions are all in sm_80, so the PTX is the same for every later GPU.
    PTX_ARCHITECTURE: ClassVar[str] = "compute_80"

    dtype: DType
    d_head: int
    B_r: int
    B_c: int
    n_warps: int
    async_copy: bool
    eager_load_blocks: bool
    swizzled: bool
    Q_mma_load_K_tiles: int
    K_mma_load_K_tiles: int
    V_mma_load_K_tiles: int
    mma_double_buffer_loads: bool
    optimized_softmax: bool

    @classmethod
    def lowest_value(cls, field: str) -> int:
        return 0 if field.endswith("_K_tiles") else 1

    def short_form(self, include_d_head: bool = True, include_tup: bool = True) -> str:
        """`(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+buffer+opt_softmax`."""
        d_head = f"{self.d_head}, " if include_d_head else ""
        shape = f"({self.dtype.name}, {d_head}{self.B_r}, {self.B_c}, {self.n_warps}): "
        words = self._flags(SHORT_FLAGS_BEFORE_LOAD)
        words.append(f"load_{self._load_tiles()}_tiles")
        words += self._flags(SHORT_FLAGS_AFTER_LOAD)
        return (shape if include_tup else "") + "+".join(words)

    def kernel_name(self) -> str:
        words = [
            "flash_fwd_sm80",
            self.dtype.name.lower(),
            f"d{self.d_head}",
            f"r{self.B_r}",
            f"c{self.B_c}",
            f"w{self.n_warps}",
            *self._flags(SHORT_FLAGS_BEFORE_LOAD),
            f"load_{self._load_tiles()}",
            *(flag.replace("_", "") for flag in self._flags(SHORT_FLAGS_AFTER_LOAD)),
        ]
        return "_".join(words)

    def symbol(self, variant: Variant) -> str:
        return self.kernel_name() + (GENERAL_SUFFIX if variant is Variant.ANY else "")

    def body_arguments(self, variant: Variant) -> tuple[str, ...]:
        return (f"flash::{self.FAMILY}::Coverage::kAnyLength",) if variant is Variant.ANY else ()

    def variants(self) -> tuple[Variant, ...]:
        return Variant.WHOLE, Variant.ANY

    def built_variants(self) -> tuple[Variant, ...]:
        """Both of the fast configurations; the others show what a switch is worth, on whole
        blocks."""
        fast = self.async_copy and self.eager_load_blocks and self.swizzled
        return self.variants() if fast and self.optimized_softmax else (Variant.WHOLE,)

    def variant_for(self, seqlen_q: int, seqlen_k: int, causal: bool) -> Variant:
        masked = causal or seqlen_k == 0
        return (
            Variant.ANY
            if masked or whole_blocks_violation(self, seqlen_q, seqlen_k)
            else Variant.WHOLE
        )

    def total_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        return calc_total_flop(n_samples, n_heads, seq_len, self.B_r, self.B_c, self.d_head)

    # Derived sizes, as in sm80/config.h.

    def n_threads(self) -> int:
        return self.n_warps * 32

    def rows_per_warp(self) -> int:
        return self.B_r // self.n_warps

    def smem_bytes(self) -> int:
        """One Q block, one K block, one V block of 16-bit elements; O reuses Q's memory."""
        return (self.B_r + 2 * self.B_c) * self.d_head * self.dtype.bytes

    def min_blocks_per_sm(self) -> int:
        return 2 if self.n_warps <= 4 else 1

    def blocks(self) -> tuple[int, int]:
        return self.B_r, self.B_c

    def _flags(self, names: tuple[tuple[str, str], ...]) -> list[str]:
        return [word for field, word in names if getattr(self, field)]

    def _load_tiles(self) -> str:
        tiles = (self.Q_mma_load_K_tiles, self.K_mma_load_K_tiles, self.V_mma_load_K_tiles)
        return "_".join(map(str, tiles))
