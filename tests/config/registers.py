"""What the registers of a kernel of the Ampere family are likely to cost.

This is advice, not a verdict: when the working set is larger than the register file the compiler
spills and the kernel is slow but correct, and several steps of `progall` do exactly that on
purpose. (The build report fails on spills that are not on its allow-list.)
"""

from __future__ import annotations

from dataclasses import dataclass

from flash_helpers.kernels.architecture import MAX_REGISTERS_PER_THREAD, WARP_SIZE
from flash_helpers.kernels.sm80_fwd.config import FlashForwardKernelConfig
from flash_helpers.kernels.sm80_fwd.constraints import MMA_K


@dataclass(frozen=True)
class RegisterEstimate:
    """32-bit registers per thread for the data that the algorithm keeps in registers.

    It takes the configuration at its word. Addresses and loop counters come on top; on the other
    hand the compiler may move an `ldmatrix` next to its `mma`, so a sum somewhat above 255 need
    not spill. What ptxas reports is the truth; this tells where to look.
    """

    o_accumulator: int
    s_accumulator: int
    q_fragments: int
    k_fragments: int
    v_fragments: int
    row_statistics: int
    q_is_resident: bool  # Q stays in registers for the whole kernel

    @property
    def qk_phase(self) -> int:
        """S = Q K^T: O is idle but alive."""
        operands = self.q_fragments + self.k_fragments
        return self.o_accumulator + self.s_accumulator + operands + self.row_statistics

    @property
    def pv_phase(self) -> int:
        """O += P V: P is S in 16 bits, so it takes half of S's registers."""
        operands = self.s_accumulator // 2 + self.v_fragments
        resident = self.q_fragments if self.q_is_resident else 0
        return self.o_accumulator + operands + resident + self.row_statistics

    @property
    def total(self) -> int:
        return max(self.qk_phase, self.pv_phase)


def register_estimate(config: FlashForwardKernelConfig) -> RegisterEstimate:
    """What the accumulators and the operand fragments of `config` need, per thread."""
    rows = config.B_r / config.n_warps

    def fragment(extent: float, depth: int, tiles: int) -> int:
        # Two 16-bit elements in a register; 0 tiles means that the whole depth is resident.
        held = tiles * MMA_K if tiles else depth
        return round(extent * held / (2 * WARP_SIZE))

    return RegisterEstimate(
        o_accumulator=round(rows * config.d_head / WARP_SIZE),
        s_accumulator=round(rows * config.B_c / WARP_SIZE),
        q_fragments=fragment(rows, config.d_head, config.Q_mma_load_K_tiles),
        k_fragments=fragment(config.B_c, config.d_head, config.K_mma_load_K_tiles),
        v_fragments=fragment(config.d_head, config.B_c, config.V_mma_load_K_tiles),
        row_statistics=round(2 * rows / 8),  # max and sum; a thread has a quarter of each row
        q_is_resident=config.Q_mma_load_K_tiles == 0,
    )


def register_advice(config: FlashForwardKernelConfig) -> str | None:
    """A sentence when the working set cannot stay in registers, so that spills are expected."""
    total = register_estimate(config).total
    if total <= MAX_REGISTERS_PER_THREAD:
        return None
    return (
        f"About {total} registers per thread are wanted and {MAX_REGISTERS_PER_THREAD} exist: "
        "expect spills to local memory."
    )
