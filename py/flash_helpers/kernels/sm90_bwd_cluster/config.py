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
from ..contract import CppEnum, Variant
from ..sm90_bwd.config import GROUP_THREADS, HopperBackwardKernelConfig
from .sections import LEAST_PAIRS, MOST_BYTES, HeadSections

BLOCKS = 2  # thread blocks of a cluster
CHUNK = 64  # elements of a chunk of a tile
ROUND_THREADS = 256
TILES_BYTES = 16 * 16  # the tile that a pair works on, and what 15 warps keep of it
STAY_BARRIERS = 4  # of tiles, and of K and V


class SumsOrder(CppEnum):
    """In which order pairs of a head add their shares of dQ to the sums in global memory."""

    ANY_ORDER = 0  # as they come
    IN_ORDER = 1  # always the same


@dataclass(frozen=True, order=True)
class ClusterBackwardKernelConfig(BackwardKernelConfig):
    """One backward pass of the Hopper family by pairs of thread blocks: keys that stay with a
    thread block, queries of a block that passes by, and stages, such blocks in shared memory;
    blocks of dS there; pairs of thread blocks that run at once, by which heads are parted into
    sections (0: they are not); and the order in which pairs add to the sums of dQ."""

    FAMILY: ClassVar[str] = "sm90_bwd_cluster"
    WORD: ClassVar[str] = "cluster_backward"
    ARGUMENTS: ClassVar[str] = "flash::sm90_bwd_cluster::BackwardKernelArgs"
    ENUMS: ClassVar[dict[str, type[CppEnum]]] = {"SumsOrder": SumsOrder}
    PTX_ARCHITECTURE: ClassVar[str] = "compute_90a"
    SHAPES: ClassVar[tuple[Variant, ...]] = (Variant.KEYS,)
    EXTRAS: ClassVar[dict[str, str]] = {"ds_stages": "ds", "wave_pairs": "w", "sums_order": ""}

    dtype: DType
    d_head: int
    keys_rows: int
    keys_columns: int
    keys_stages: int
    ds_stages: int
    wave_pairs: int
    sums_order: SumsOrder

    @classmethod
    def lowest_value(cls, field: str) -> int:
        return 0 if field in ("wave_pairs", "sums_order") else super().lowest_value(field)

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
        """The sums of dQ are cleared by the first kernel and added up by the second, which does
        what those around it do as well, for other sections."""
        found = super().outputs(variant)
        if variant is Variant.ROUND:
            return found
        too = ("row_stats", "d_q") if variant is Variant.KEYS and self.wave_pairs else ()
        return (*found, *too, "d_q_sums")

    def scratch(self) -> tuple[str, ...]:
        return (*super().scratch(), "d_q_sums")

    def stats_block(self) -> int:
        return row_stats_block(self.keys_columns)

    def is_deterministic(self) -> bool:
        return self.sums_order is SumsOrder.IN_ORDER

    def stays(self) -> bool:
        return True

    def cluster(self, variant: Variant) -> int:
        return BLOCKS if variant is Variant.KEYS else 1

    def grid(self, variant: Variant, sizes: Sizes) -> int:
        """Of the large kernel whole clusters; of those around it what it leaves them."""
        if variant is Variant.KEYS:
            return self._pairs(sizes) * BLOCKS * sizes.n_heads_kv * sizes.batch
        sections = self.sections(sizes)
        if variant is Variant.ROUND:
            return -(-sizes.seqlen_q // self.keys_columns) * sections.rounded_behind()
        return self.stats_rows(sizes) // self.dots_rows() * sections.prepared_before()

    def _pairs(self, sizes: Sizes) -> int:
        """Of a head."""
        return -(-sizes.seqlen_k // (BLOCKS * self.keys_rows))

    def section_blocks(self) -> int:
        """Pairs of a section."""
        return self.wave_pairs or 128

    def sections(self, sizes: Sizes) -> HeadSections:
        """As sections_of() in sm90_bwd_cluster/sections.h."""
        pairs = self._pairs(sizes)
        together = self.section_blocks() // pairs if sizes.causal and pairs > 0 else 1
        kv_heads = max(together, 1)
        heads = kv_heads * (sizes.n_heads_q // sizes.n_heads_kv)
        n_heads = sizes.n_heads_q * sizes.batch
        count = -(-n_heads // heads)
        rows, lead = self.stats_rows(sizes), count
        if self.wave_pairs > 0 and pairs >= LEAST_PAIRS[sizes.causal]:
            enough = -(-self.wave_pairs // (kv_heads * pairs)) + (1 if sizes.causal else 0)
            section_bytes = heads * rows * self.d_head * 4
            if (2 * enough + 1) * section_bytes <= MOST_BYTES:
                lead = min(enough, count)
        workers = kv_heads * pairs // (2 if sizes.causal else 1)
        return HeadSections(kv_heads * pairs, workers, heads, n_heads, rows, count, lead)

    def sums_columns(self) -> int:
        """Behind the sums, counters: two of each section (sections.h) or, in order, of each block
        of queries (sums_turns.cuh), and at the end one of tiles (tiles.cuh)."""
        return self.d_head + 1

    def threads_of(self, variant: Variant) -> int:
        """Of the large kernel a warpgroup more than the two-pass one has: that of dQ."""
        if variant is Variant.ROUND:
            return ROUND_THREADS
        more = GROUP_THREADS if variant is Variant.KEYS else 0
        return self.two_pass().threads_of(variant) + more

    def smem_of(self, variant: Variant) -> int:
        """Of the large kernel: blocks of dS of both thread blocks, two chunks of the other's K, all
        that the two-pass kernel has, the tile, and barriers."""
        if variant is Variant.ROUND:
            return self.keys_columns * self.d_head * self.dtype.bytes
        if variant is Variant.DOTS:
            return 0
        ds = self.ds_stages * BLOCKS * self.keys_rows * self.keys_columns * self.dtype.bytes
        other_keys = 2 * self.keys_rows * CHUNK * self.dtype.bytes
        barriers = 8 * (2 * self.ds_stages + 1 + STAY_BARRIERS + 4 * self.is_deterministic())
        two_pass = -(-self.two_pass().smem_of(variant) // 16) * 16
        return ds + other_keys + two_pass + TILES_BYTES + barriers

    def min_blocks_per_sm(self, variant: Variant = Variant.KEYS) -> int:
        return 4 if variant is Variant.ROUND else self.two_pass().min_blocks_per_sm(variant)
