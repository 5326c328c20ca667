"""The Hopper family's fused backward pass: five matmuls in place of seven, and sums of dQ in global
memory, to which thread blocks add as they come, or in order."""

import math
from collections.abc import Sequence
from typing import ClassVar

from ..backward_args import with_head_splits
from ..backward_config import Sizes, called_sizes
from ..contract import KernelConfig, Variant
from ..family import Capability
from ..one_set import BackwardFamily
from ..problem import AttentionProblem
from ..sm90_target import ARCHITECTURE, OnHopper
from .config import AddBy, FusedBackwardKernelConfig
from .constraints import HEAD_DIMENSIONS, violations
from .sets import WIDE, WIDE_COLUMNS, get_fused_backward_kernel_configs

# Up to so many blocks of keys in all, thread blocks that wait for each other lose more than the
# kernels around sums in any order cost, unless they begin at once with a mask and wide heads
# (docs/results/hopper-backward-h200.md).
FEW_BLOCKS = 512


def sizes_of(problem: AttentionProblem) -> Sizes:
    return Sizes(
        problem.batch, problem.seqlen_q, problem.seqlen_k, problem.n_heads, problem.n_kv_heads,
        causal=problem.causal,
    )  # fmt: skip


def in_order_keys(d_head: int, causal: bool, sharing: int) -> float:
    """Up to so many, sums in order were no slower (docs/results/hopper-backward-h200.md), where
    `sharing` query heads have a KV head."""
    if causal and d_head > 64 and sharing >= 4:
        return math.inf
    return 4096 if causal or d_head <= 64 else 2048


class Sm90FusedBackward(OnHopper, BackwardFamily[FusedBackwardKernelConfig]):
    NAME: ClassVar[str] = FusedBackwardKernelConfig.FAMILY
    CONFIG = FusedBackwardKernelConfig
    SET: ClassVar[str] = "hopper-bwd"
    TITLE: ClassVar[str] = "Hopper fused backward"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 128, 128, 64, 2, 2, COPIES): fused_backward' or its symbol "
        "'flash_bwd_sm90_fused_fp16_d128_k128x64s2_ds2_copies'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = HEAD_DIMENSIONS
    COMPILE_SECONDS: ClassVar[float] = 2.9

    def configs(self) -> Sequence[FusedBackwardKernelConfig]:
        return get_fused_backward_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(self.own(config), arch)

    def launch_arguments(self, config: KernelConfig, record: bytes, variant: Variant) -> bytes:
        """The large kernel's are those of the two-pass kernel of dK and dV; the others read no
        tensor maps. All but those that serve know among how many thread blocks heads are shared
        out."""
        from ..sm90_bwd.arguments import NarrowMap, pack_launch_arguments  # loads the emulator

        own = self.own(config)
        taken = Variant.KEYS if variant is Variant.KEYS else Variant.DOTS
        narrow = NarrowMap("d_q", own.group_queries()) if own.is_deterministic() else None
        if not own.SERVES:
            record = with_head_splits(record, own.head_splits(called_sizes(record)))
        return pack_launch_arguments(own.two_pass(), record, taken, narrow)

    def preference(self, capability: Capability | None) -> int:
        """First on its own GPUs (measured: docs/results/hopper-backward-h200.md); else last."""
        return 4 if capability == ARCHITECTURE else 0

    def suits(self, config: KernelConfig, problem: AttentionProblem) -> bool:
        """Which sums it adds, and how many queries a block has, by what was measured."""
        own = self.own(config)
        add_by = AddBy.IN_ORDER if self._adds_in_order(own, problem) else AddBy.COPIES
        beyond = WIDE.get((own.d_head, add_by), {}).get(problem.causal, math.inf)
        is_wide = problem.seqlen_k > beyond
        return own.add_by is add_by and (own.keys_columns == WIDE_COLUMNS) is is_wide

    def _adds_in_order(self, own: FusedBackwardKernelConfig, problem: AttentionProblem) -> bool:
        """Nothing has to be cleared before, nor rounded behind: faster where thread blocks hardly
        wait for each other. For keys that many heads share they read the same from L2."""
        of_head = -(-problem.seqlen_k // own.keys_rows)
        if problem.deterministic or of_head == 1:
            return True
        if problem.batch * problem.n_kv_heads * of_head <= FEW_BLOCKS:
            return problem.causal and own.d_head > 64 and own.begins_at_once(sizes_of(problem))
        sharing = problem.n_heads // problem.n_kv_heads
        return problem.seqlen_k <= in_order_keys(own.d_head, problem.causal, sharing)

    def promise(self, config: KernelConfig) -> tuple[object, ...]:
        """What was measured to be the fastest: sums added by the copy engine."""
        own = self.own(config)
        return own.add_by is AddBy.COPIES, own


FAMILY = Sm90FusedBackward()
