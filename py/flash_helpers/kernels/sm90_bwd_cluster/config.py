"""`ClusterBackwardKernelConfig`: every choice of one backward pass of the Hopper family by pairs of
thread blocks that is fixed at compile time.

The field order is a contract with csrc/include/flash/sm90_bwd_cluster/config.h (tested).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...base.dtypes import DType
from ..backward_args import row_stats_block
from ..backward_config import BackwardKernelConfig, Sizes
from ..contract import Variant
from ..sm90_bwd.config import GROUP_THREADS, HopperBackwardKernelConfig

BLOCKS = 2  # thread blocks of a cluster
CHUNK = 64  # elements of a chunk of a tile
ROUND_THREADS = 256


@dataclass(frozen=True, order=True)
class ClusterBackwardKernelConfig(BackwardKernelConfig):
    """One backward pass of the Hopper family by pairs of thread blocks: keys that stay with a
    thread block, queries of a block that passes by, and stages, such blocks in shared memory; and
    blocks of dS there."""

    FAMILY: ClassVar[str] = "sm90_bwd_cluster"
    WORD: ClassVar[str] = "cluster_backward"
    ARGUMENTS: ClassVar[str] = "flash::sm90_bwd_cluster::BackwardKernelArgs"
    PTX_ARCHITECTURE: ClassVar[str] = "compute_90a"
    SHAPES: ClassVar[tuple[Variant, ...]] = (Variant.KEYS,)
    EXTRAS: ClassVar[dict[str, str]] = {"ds_stages": "ds"}

    dtype: DType
    d_head: int
    keys_rows: int
    keys_columns: int
    keys_stages: int
    ds_stages: int

    # Derived sizes, as in sm90_bwd_cluster/config.h.

    def two_pass(self) -> HopperBackwardKernelConfig:
        """That whose kernel of dK and dV keeps the same rows and has the same blocks pass by."""
        shape = self.shape(Variant.KEYS)
        return HopperBackwardKernelConfig(self.dtype, self.d_head, *shape, *shape)

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

    def stats_block(self) -> int:
        return row_stats_block(self.keys_columns)

    def is_deterministic(self) -> bool:
        return False

    def cluster(self, variant: Variant) -> int:
        return BLOCKS if variant is Variant.KEYS else 1

    def grid(self, variant: Variant, sizes: Sizes) -> int:
        """Of the large kernel whole clusters."""
        if variant is Variant.KEYS:
            pairs = -(-sizes.seqlen_k // (BLOCKS * self.keys_rows))
            return pairs * BLOCKS * sizes.n_heads_kv * sizes.batch
        if variant is Variant.ROUND:
            return -(-sizes.seqlen_q // self.keys_columns) * sizes.n_heads_q * sizes.batch
        return super().grid(variant, sizes)

    def threads_of(self, variant: Variant) -> int:
        """Of the large kernel a warpgroup more than the two-pass one has: that of dQ."""
        if variant is Variant.ROUND:
            return ROUND_THREADS
        more = GROUP_THREADS if variant is Variant.KEYS else 0
        return self.two_pass().threads_of(variant) + more

    def smem_of(self, variant: Variant) -> int:
        """Of the large kernel: blocks of dS of both thread blocks, two chunks of the other's K, all
        that the two-pass kernel has, and barriers."""
        if variant is Variant.ROUND:
            return self.keys_columns * self.d_head * self.dtype.bytes
        if variant is Variant.DOTS:
            return 0
        ds = self.ds_stages * BLOCKS * self.keys_rows * self.keys_columns * self.dtype.bytes
        other_keys = 2 * self.keys_rows * CHUNK * self.dtype.bytes
        barriers = 8 * (2 * self.ds_stages + 1)
        return ds + other_keys + self.two_pass().smem_of(variant) + barriers

    def min_blocks_per_sm(self, variant: Variant = Variant.KEYS) -> int:
        return 4 if variant is Variant.ROUND else self.two_pass().min_blocks_per_sm(variant)
