"""`HopperServeKernelConfig`: every choice of one of the Hopper family's serving kernels that is
fixed at compile time.

The field order is a contract with csrc/include/flash/sm90_serve/config.h (tested).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..contract import Variant, WarpSpecialisation
from ..serve_config import MANY_HEADS, ServeKernelConfig, ServeSizes
from ..sm90_fwd.config import GROUP_ROWS, HopperForwardKernelConfig, MaxPolicy
from ..sm90_target import SHARED_MEMORY_BYTES

TILE_BYTES = 48  # what consumers are told of a tile
LEAST_PART_ROWS = 8  # keys that one copy takes of a page
CLEARING_BYTES = 32  # two barriers and four words, for each buffer of V
# Queries of an average sequence below which most of a tile of one head's would be idle.
LEAST_ROWS = 33
# Queries of an average sequence in tiles of three groups' rows: these fill one, or begin a second
# that is no loss; of so many the last tile's idle rows count little.
LARGE_TILE_QUERIES = range(2 * GROUP_ROWS + 1, 4 * GROUP_ROWS + 1)
LONG_QUERIES = 768
NARROW_WINDOW = 512  # keys; of 1,024 the kernels of narrow windows were slower than the others
# Where a tile has the queries of all heads that share a KV head: how many heads there are, and how
# many queries an average sequence has, where all have as many, and where only the device knows how
# many each has.
PACKED_HEADS = range(2, GROUP_ROWS + 1)
PACKED_EQUAL = range(17, 128)
PACKED_MIXED = range(9, 128)


@dataclass(frozen=True, order=True)
class HopperServeKernelConfig(ServeKernelConfig):
    """The serving kernel of the Hopper family, for prompts: the forward pass' loads, matmuls and
    softmax on sequences of different lengths."""

    FAMILY: ClassVar[str] = "sm90_serve"
    ARGUMENTS: ClassVar[str] = "flash::sm90_serve::ServeKernelArgs"
    WORD: ClassVar[str] = "hopper_serve"
    SYMBOL_START: ClassVar[str] = "flash_serve_sm90"
    LETTERS: ClassVar[dict[str, str]] = {
        "d_head": "d", "block_n": "n", "n_mma_groups": "g", "n_buffers": "b", "n_q_buffers": "q",
    }  # fmt: skip
    SWITCHES: ClassVar[tuple[str, ...]] = ("paged", "pack_gqa", "narrow_v", "narrow_window")
    PTX_ARCHITECTURE: ClassVar[str] = "compute_90a"
    PERSISTENT: ClassVar[bool] = True

    d_head: int
    block_n: int
    n_mma_groups: int
    n_buffers: int
    n_q_buffers: int
    paged: bool = False
    pack_gqa: bool = False
    narrow_v: bool = False  # values have two thirds of a key's elements
    narrow_window: bool = False  # rows see few blocks: no turns, and nothing is optimistic

    def variants(self) -> tuple[Variant, ...]:
        return (Variant.SERVE,)

    def warp_specialisation(self) -> WarpSpecialisation | None:
        return self.forward().warp_specialisation()

    def total_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        return self.forward().total_flop(n_samples, n_heads, seq_len)

    # Which calls it takes, and how they are launched.

    def refusal(self, sizes: ServeSizes) -> str | None:
        if sizes.n_new or sizes.rotates:
            return "its kernels neither append nor rotate"
        if (sizes.d_head, sizes.d_v) != (self.d_head, self.d_v()):
            return f"its kernels have keys of {self.d_head} elements and values of {self.d_v()}"
        if self.pack_gqa != packs(sizes):
            heads = "all heads of a KV head" if self.pack_gqa else "one head"
            return f"its kernels have rows of {heads} in a tile"
        if not self.pack_gqa and sizes.n_rows < LEAST_ROWS * sizes.batch:
            return f"it takes sequences of {LEAST_ROWS} queries or more, on average"
        if self.narrow_window and not 0 < sizes.window <= NARROW_WINDOW:
            return f"it is for windows of up to {NARROW_WINDOW} keys"
        if self.n_mma_groups == 3 and not has_large_tiles(sizes):
            few = LARGE_TILE_QUERIES
            return f"its tiles are for {few[0]} to {few[-1]} queries, or {LONG_QUERIES} and more"
        if sizes.page_size % LEAST_PART_ROWS:
            return f"it takes pages of a multiple of {LEAST_PART_ROWS} keys"
        if sizes.paged != self.paged:
            return f"its kernels {'read' if self.paged else 'do not read'} pages"
        return None

    def can_split(self) -> bool:
        return False

    def rows(self, sizes: ServeSizes) -> int:
        heads = self.packed_heads(sizes.n_heads_q, sizes.n_heads_kv)
        return -(-sizes.n_rows * heads // sizes.batch)

    def n_tiles(self, sizes: ServeSizes) -> int:
        """Of one of the heads that have tiles."""
        rows = self.tile_queries(sizes.n_heads_q, sizes.n_heads_kv)
        if sizes.seqlen_q:
            return -(-sizes.seqlen_q // rows) * sizes.batch
        return sizes.n_rows // rows + sizes.batch

    def grid(self, variant: Variant, sizes: ServeSizes) -> int:
        """Tiles, of which each thread block takes several."""
        return self.n_tiles(sizes) * self.heads_of_tiles(sizes.n_heads_q, sizes.n_heads_kv)

    # Derived sizes, as in sm90_serve/config.h.

    def d_v(self) -> int:
        return self.forward().value_columns()

    def packed_heads(self, n_heads_q: int, n_heads_kv: int) -> int:
        """Query heads whose rows share a tile."""
        return n_heads_q // n_heads_kv if self.pack_gqa else 1

    def heads_of_tiles(self, n_heads_q: int, n_heads_kv: int) -> int:
        """Heads that have tiles of their own."""
        return n_heads_q // self.packed_heads(n_heads_q, n_heads_kv)

    def tile_queries(self, n_heads_q: int, n_heads_kv: int) -> int:
        """Queries of a tile: each group of consumers has whole ones."""
        return self.n_mma_groups * (GROUP_ROWS // self.packed_heads(n_heads_q, n_heads_kv))

    def part_rows(self, page_size: int) -> int:
        """Keys of one copy out of a page."""
        return math.gcd(page_size, self.block_n)

    def forward(self) -> HopperForwardKernelConfig:
        """The forward pass whose tiles, matmuls and softmax these are."""
        return self._with_output(self.o_in_q())

    def o_in_q(self) -> bool:
        """Whether outputs are staged in its place, where there is no room beside a single Q."""
        n_bytes = self._smem_bytes(self._with_output(False))
        return self.n_q_buffers == 1 and n_bytes > SHARED_MEMORY_BYTES

    def n_threads(self) -> int:
        return self.forward().n_threads()

    def smem_bytes(self) -> int:
        return self._smem_bytes(self.forward())

    def min_blocks_per_sm(self) -> int:
        return 1

    def block_m(self) -> int:
        return self.forward().block_m()

    def blocks(self) -> tuple[int, int]:
        return self.forward().blocks()

    def _with_output(self, o_in_q: bool) -> HopperForwardKernelConfig:
        return HopperForwardKernelConfig(
            self.dtype, self.d_head, self.block_n, self.n_mma_groups, self.n_buffers,
            self.n_q_buffers, MaxPolicy.EXACT if self.narrow_window else MaxPolicy.OPTIMISTIC,
            overlap=True, ping_pong=not self.narrow_window, o_in_q=o_in_q,
            d_v=self.d_head // 3 * 2 if self.narrow_v else 0,
        )  # fmt: skip

    def _smem_bytes(self, forward: HopperForwardKernelConfig) -> int:
        clearing = -(-forward.smem_bytes() // 16) * 16
        return clearing + self.n_buffers * CLEARING_BYTES + (self.n_q_buffers + 1) * TILE_BYTES


def has_large_tiles(sizes: ServeSizes) -> bool:
    """Whether a call is for tiles of three groups' rows, if there are kernels with such."""
    queries = -(-sizes.n_rows // max(sizes.batch, 1))
    return queries in LARGE_TILE_QUERIES or queries >= LONG_QUERIES


def packs(sizes: ServeSizes) -> bool:
    """Whether a call is for tiles with the rows of all heads that share a KV head: where sequences
    have few queries, or some have, as decodes beside a chunk of a prompt, and there are tiles
    enough, since nobody shares their keys. Decodes alone are for kernels that do share them."""
    queries = -(-sizes.n_rows // max(sizes.batch, 1))
    return (
        sizes.n_heads_q // sizes.n_heads_kv in PACKED_HEADS
        and queries in (PACKED_EQUAL if sizes.seqlen_q else PACKED_MIXED)
        and sizes.batch * sizes.n_heads_kv >= MANY_HEADS
    )
