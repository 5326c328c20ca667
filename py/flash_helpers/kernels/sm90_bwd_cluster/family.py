"""The Hopper family's backward pass by pairs of thread blocks: five matmuls in place of seven where
a multiprocessor's registers hold the gradients of 64 keys alone."""

from collections.abc import Sequence
from typing import ClassVar

from ..backward_config import called_sizes
from ..contract import KernelConfig, Variant
from ..family import Capability
from ..one_set import BackwardFamily
from ..problem import AttentionProblem
from ..sm90_target import ARCHITECTURE, OnHopper
from .config import ClusterBackwardKernelConfig
from .constraints import HEAD_DIMENSIONS, violations
from .sets import get_cluster_backward_kernel_configs

CHUNK_BYTES = 128  # of a row of K


class Sm90ClusterBackward(OnHopper, BackwardFamily[ClusterBackwardKernelConfig]):
    NAME: ClassVar[str] = ClusterBackwardKernelConfig.FAMILY
    CONFIG = ClusterBackwardKernelConfig
    SET: ClassVar[str] = "hopper-bwd"
    TITLE: ClassVar[str] = "Hopper backward by pairs"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 192, 64, 64, 2, 2, 64, ANY_ORDER): cluster_backward' or its symbol "
        "'flash_bwd_sm90_cluster_fp16_d192_k64x64s2_ds2_w64_any_order'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = HEAD_DIMENSIONS
    COMPILE_SECONDS: ClassVar[float] = 2.6

    def configs(self) -> Sequence[ClusterBackwardKernelConfig]:
        return get_cluster_backward_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(self.own(config), arch)

    def launch_arguments(self, config: KernelConfig, record: bytes, variant: Variant) -> bytes:
        """The large kernel's are those of the two-pass kernel of dK and dV, and a map of chunks of
        K; the others read no tensor maps. Sections stand behind them."""
        from ..sm90_bwd.arguments import NarrowMap, pack_launch_arguments  # loads the emulator

        own = self.own(config)
        sections = own.sections(called_sizes(record)).pack()
        if variant is not Variant.KEYS:
            return pack_launch_arguments(own.two_pass(), record, Variant.DOTS) + sections
        narrow = NarrowMap("k", own.keys_rows, CHUNK_BYTES)
        return pack_launch_arguments(own.two_pass(), record, variant, narrow) + sections

    def preference(self, capability: Capability | None) -> int:
        """In front of two passes on its own GPUs, where it serves; else last."""
        return 4 if capability == ARCHITECTURE else 0

    def suits(self, config: KernelConfig, problem: AttentionProblem) -> bool:
        """What adds in any order is faster (docs/results/hopper-backward-h200.md)."""
        return self.own(config).is_deterministic() == problem.deterministic

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        # Where it was faster (docs/results/hopper-backward-h200.md).
        least = 2048 if problem.causal and problem.deterministic else 1024
        if problem.seqlen_k < least:
            return f"for fewer than {least} keys two passes are faster"
        return super().refusal(problem, capability)


FAMILY = Sm90ClusterBackward()
