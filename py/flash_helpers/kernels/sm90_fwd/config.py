"""`HopperForwardKernelConfig`: every choice of one kernel of the Hopper family that is fixed at
compile time.

The field order is a contract with csrc/include/flash/sm90/config.h (tested). A new
field is one line in the class and one in OPTIONS; both spellings and their parser follow from
these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...base.dtypes import DType
from ..contract import CppEnum, KernelConfig, Variant, WarpSpecialisation
from ..flops import calc_tiled_flop

GROUP_ROWS = 64  # rows of one wgmma, and so of one consumer warpgroup
GROUP_THREADS = 128

# (field, its word), in the order of the names. A switch is spelt by its word if it is on; a number
# by word and digits, and an enumeration by word and name, unless it is 0.
OPTIONS = (
    ("max_policy", ""),
    ("overlap", "overlap"),
    ("ping_pong", "pingpong"),
    ("o_in_q", "oinq"),
    ("d_v", "v"),
)


class MaxPolicy(CppEnum):
    """How the softmax's reference follows the running maximum of a row."""

    EXACT = 0
    LAZY = 1
    OPTIMISTIC = 2


@dataclass(frozen=True, order=True)
class HopperForwardKernelConfig(KernelConfig):
    """One kernel of the Hopper family: a producer warpgroup that loads with TMA, and consumer
    warpgroups that multiply with wgmma."""

    FAMILY: ClassVar[str] = "sm90"
    ARGUMENTS: ClassVar[str] = "flash::sm90::ForwardKernelArgs"
    ENUMS: ClassVar[dict[str, type[CppEnum]]] = {"MaxPolicy": MaxPolicy}
    PTX_ARCHITECTURE: ClassVar[str] = "compute_90a"
    PERSISTENT: ClassVar[bool] = True

    dtype: DType
    d_head: int
    block_n: int
    n_mma_groups: int
    n_buffers: int
    n_q_buffers: int
    max_policy: MaxPolicy
    overlap: bool
    ping_pong: bool
    o_in_q: bool
    d_v: int = 0  # of kernels that serve; 0: values are as wide as keys

    @classmethod
    def lowest_value(cls, field: str) -> int:
        return 0 if field in dict(OPTIONS) else 1

    def short_form(self) -> str:
        """`(FP16, 128, 128, 128, 2, 2, 1): hopper+lazy+overlap+pingpong`: dtype, d_head, query
        rows, key rows, consumer groups, buffers of K and V, buffers of Q."""
        shape = (
            self.d_head, self.block_m(), self.block_n, self.n_mma_groups, self.n_buffers,
            self.n_q_buffers,
        )  # fmt: skip
        words = "+".join(["hopper", *self._words()])
        return f"({self.dtype.name}, {', '.join(map(str, shape))}): {words}"

    def kernel_name(self) -> str:
        words = [
            "flash_fwd_sm90",
            self.dtype.name.lower(),
            f"d{self.d_head}",
            f"m{self.block_m()}",
            f"n{self.block_n}",
            f"g{self.n_mma_groups}",
            f"b{self.n_buffers}",
            f"q{self.n_q_buffers}",
            *self._words(),
        ]
        return "_".join(words)

    def symbol(self, variant: Variant) -> str:
        if variant is not Variant.ANY:
            raise ValueError(f"{self} has one kernel, which takes any problem")
        return self.kernel_name()

    def variants(self) -> tuple[Variant, ...]:
        return (Variant.ANY,)

    def variant_for(self, seqlen_q: int, seqlen_k: int, causal: bool) -> Variant:
        return Variant.ANY

    def warp_specialisation(self) -> WarpSpecialisation:
        return WarpSpecialisation(self.ping_pong, self.n_mma_groups, GROUP_THREADS, self.n_buffers)

    def total_flop(self, n_samples: int, n_heads: int, seq_len: int) -> int:
        """Everything the kernel computes without a mask: blocks at the ends are computed whole."""
        m, n = self.blocks()
        return calc_tiled_flop(
            n_samples * n_heads, -(-seq_len // m), -(-seq_len // n), m, n, self.d_head
        )

    # Derived sizes, as in sm90/config.h.

    def block_m(self) -> int:
        return self.n_mma_groups * GROUP_ROWS

    def n_threads(self) -> int:
        return (self.n_mma_groups + 1) * GROUP_THREADS

    def smem_bytes(self) -> int:
        """The rings of Q tiles and of K and V blocks, O unless it is staged in Q's place, barriers,
        and the number of the tile in each Q buffer."""
        queries = self.n_q_buffers * self.block_m() * self.d_head
        outputs = 0 if self.o_in_q else self.block_m() * self.value_columns()
        keys = self.n_buffers * self.block_n * (self.d_head + self.value_columns())
        n_barriers = 2 * self.n_q_buffers * self.n_mma_groups + 4 * self.n_buffers
        tiles = (queries + outputs + keys) * self.dtype.bytes
        return tiles + 8 * n_barriers + 4 * self.n_q_buffers

    def swizzle_bytes(self) -> int:
        """The shared-memory row of a tile, and the mode of its swizzle."""
        return 128 if self.d_head * self.dtype.bytes % 128 == 0 else 64

    def chunk_columns(self) -> int:
        return self.swizzle_bytes() // self.dtype.bytes

    def n_chunks(self) -> int:
        return self.d_head // self.chunk_columns()

    def value_columns(self) -> int:
        return self.d_v or self.d_head

    def consumer_registers(self) -> int:
        """Of a consumer's thread after setmaxnreg."""
        if self.n_mma_groups == 3:
            return 160
        return 240 if self.n_q_buffers == 1 else 232

    def blocks(self) -> tuple[int, int]:
        return self.block_m(), self.block_n

    def _words(self) -> list[str]:
        found = []
        for field, word in OPTIONS:
            if value := getattr(self, field):
                name = value.name.lower() if isinstance(value, CppEnum) else str(value)
                found.append(word if value is True else word + name)
        return found
