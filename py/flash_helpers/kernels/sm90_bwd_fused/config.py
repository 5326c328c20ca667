"""`FusedBackwardKernelConfig`: every choice of one fused backward pass of the Hopper family that is
fixed at compile time.

The field order is a contract with csrc/include/flash/sm90_bwd_fused/config.h (tested).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ...base.dtypes import DType
from ..backward_args import row_stats_block
from ..backward_config import BackwardKernelConfig, Sizes
from ..contract import CppEnum, Variant
from ..sm90_bwd.config import FP32_BYTES, HopperBackwardKernelConfig

GROUPS = 2  # consumer warpgroups
ROUND_THREADS = 256
WARPS = 8  # that multiply
SENDERS = 2  # warps that send what is staged of dQ
WANTED_BLOCKS = 128  # thread blocks of a launch; twice as many with a mask
TILE_BYTES = 16  # which tile a thread block that stays works on


class AddBy(CppEnum):
    """How a block's share of dQ is added to the sums in global memory."""

    COPIES = 0  # by the copy engine, from shared memory
    REGISTERS = 1  # by vector reductions
    IN_ORDER = 2  # by the copy engine, thread blocks of a head always in the same order


@dataclass(frozen=True, order=True)
class FusedBackwardKernelConfig(BackwardKernelConfig):
    """One fused backward pass of the Hopper family: keys that stay with a thread block, queries of
    a block that passes by, and stages, such blocks in shared memory; blocks of dS there; and how dQ
    is added up."""

    FAMILY: ClassVar[str] = "sm90_bwd_fused"
    WORD: ClassVar[str] = "fused_backward"
    ARGUMENTS: ClassVar[str] = "flash::sm90_bwd_fused::BackwardKernelArgs"
    ENUMS: ClassVar[dict[str, type[CppEnum]]] = {"AddBy": AddBy}
    PTX_ARCHITECTURE: ClassVar[str] = "compute_90a"
    SHAPES: ClassVar[tuple[Variant, ...]] = (Variant.KEYS,)
    EXTRAS: ClassVar[dict[str, str]] = {"ds_stages": "ds", "add_by": ""}

    dtype: DType
    d_head: int
    keys_rows: int
    keys_columns: int
    keys_stages: int
    ds_stages: int
    add_by: AddBy

    @classmethod
    def lowest_value(cls, field: str) -> int:
        return 0 if field == "add_by" else 1

    # Derived sizes, as in sm90_bwd_fused/config.h.

    def two_pass(self) -> HopperBackwardKernelConfig:
        """That whose kernel of dK and dV keeps the same rows and has the same blocks pass by."""
        shape = self.shape(Variant.KEYS)
        return HopperBackwardKernelConfig(self.dtype, self.d_head, *shape, *shape)

    def n_matmuls(self, variant: Variant) -> int:
        return 5

    def variants(self) -> tuple[Variant, ...]:
        first = Variant.DOTS, Variant.KEYS
        return first if self.add_by is AddBy.IN_ORDER else (*first, Variant.ROUND)

    def outputs(self, variant: Variant) -> tuple[str, ...]:
        """The sums of dQ are cleared by the first kernel and added up by the second; in order, that
        rounds them too, and the first clears the dQ of queries that see no key."""
        found = super().outputs(variant)
        if self.add_by is AddBy.IN_ORDER:
            return (*found, "d_q", "d_q_sums")
        return found if variant is Variant.ROUND else (*found, "d_q_sums")

    def scratch(self) -> tuple[str, ...]:
        return (*super().scratch(), "d_q_sums")

    def sums_columns(self) -> int:
        """Where thread blocks stay, a counter stands behind the sums for each of their rows."""
        return self.d_head + self.stays()

    def head_splits(self, sizes: Sizes) -> int:
        """Among how many thread blocks the query heads of each block of keys are shared out: as
        many as a launch can have and each has equally many of them (sm90_bwd_fused/head_splits.h).
        """
        group = sizes.n_heads_q // sizes.n_heads_kv
        wanted = (2 if sizes.causal else 1) * WANTED_BLOCKS
        most = min(wanted // max(self._key_blocks(sizes), 1), group)
        return max((n for n in range(1, most + 1) if group % n == 0), default=1)

    def begins_at_once(self, sizes: Sizes) -> bool:
        """Whether every multiprocessor has a thread block at most: in order, with a mask, blocks of
        keys all come forwards then (flash/tile/ordered_tiles.cuh)."""
        return self.grid(Variant.KEYS, sizes) <= WANTED_BLOCKS

    def _key_blocks(self, sizes: Sizes) -> int:
        return super().grid(Variant.KEYS, sizes)

    def sums_shape(self, sizes: Sizes) -> tuple[int, int, int, int]:
        """Where heads are shared out, a counter for each block of keys follows, filled up to whole
        16 bytes, and each thread block's sums of dK and dV."""
        shape = super().sums_shape(sizes)
        splits = self.head_splits(sizes)
        if splits == 1:
            return shape
        n_blocks = self._key_blocks(sizes)
        counters = -(-n_blocks // 4) * 4
        parts = n_blocks * splits * 2 * self.keys_rows * self.d_head
        return 1, 1, 1, math.prod(shape) + counters + parts

    def group_queries(self) -> int:
        """Of a group's part of a block's sums, in matmuls of 64 elements of the head."""
        return self.keys_columns // GROUPS * -(-self.d_head // 64)

    def staging_buffers(self) -> int:
        """Where sums of dQ wait for the copy engine: of a block of queries each."""
        return 2 if self.keys_columns * self.d_head <= 64 * 128 else 1

    def stats_block(self) -> int:
        return row_stats_block(self.keys_columns)

    def is_deterministic(self) -> bool:
        return self.add_by is AddBy.IN_ORDER

    def stays(self) -> bool:
        return not self.SERVES

    def grid(self, variant: Variant, sizes: Sizes) -> int:
        if variant is not Variant.ROUND:
            splits = self.head_splits(sizes) if variant is Variant.KEYS else 1
            return super().grid(variant, sizes) * splits
        blocks = -(-sizes.seqlen_q // self.keys_columns)
        return blocks * sizes.n_heads_q * sizes.batch

    def threads_of(self, variant: Variant) -> int:
        return ROUND_THREADS if variant is Variant.ROUND else self.two_pass().threads_of(variant)

    def smem_of(self, variant: Variant) -> int:
        """Of the large kernel: blocks of dS, sums of dQ that wait for the copy engine, all that the
        two-pass kernel has, and barriers."""
        if variant is Variant.ROUND:
            return self.keys_columns * -(-self.d_head // 64) * 64 * self.dtype.bytes
        if variant is Variant.DOTS:
            return 0
        ds = self.keys_columns * self.keys_rows * self.dtype.bytes
        staged = self.add_by is not AddBy.REGISTERS
        sums = self.keys_columns * self.d_head * FP32_BYTES
        staging = self.staging_buffers() * sums if staged else 0
        barriers = 8 * (2 * self.ds_stages + GROUPS * self.staging_buffers())
        stay = TILE_BYTES * (1 + WARPS + SENDERS) + 8 * (4 + self.staging_buffers())
        return self.ds_stages * ds + staging + self.two_pass().smem_of(variant) + barriers + stay

    def min_blocks_per_sm(self, variant: Variant = Variant.KEYS) -> int:
        return 4 if variant is Variant.ROUND else self.two_pass().min_blocks_per_sm(variant)
