"""The Hopper family's fused backward pass that serves: packed sequences, and windows."""

from collections.abc import Sequence
from typing import ClassVar

from .. import backward_names
from ..contract import KernelConfig, Variant
from ..family import Capability, Family, Sets
from ..problem import AttentionProblem
from ..sm90_bwd_fused.constraints import HEAD_DIMENSIONS, violations
from ..sm90_bwd_fused.family import FAMILY as FUSED
from ..sm90_target import ARCHITECTURE, refusal
from .config import FusedServeBackwardKernelConfig
from .sets import get_fused_serve_backward_kernel_configs


class Sm90FusedBackwardServe(Family):
    NAME: ClassVar[str] = FusedServeBackwardKernelConfig.FAMILY
    TITLE: ClassVar[str] = "Hopper fused serving backward"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 128, 128, 64, 2, 2, COPIES): fused_serve_backward' or its symbol "
        "'flash_bwd_serve_sm90_fp16_d128_k128x64s2_ds2_copies'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = HEAD_DIMENSIONS
    GRADIENTS: ClassVar[bool] = True
    SERVES: ClassVar[bool] = True
    TARGETS: ClassVar[tuple[str, ...] | None] = ("90a",)

    def parse(self, text: str) -> KernelConfig | None:
        return backward_names.parse(FusedServeBackwardKernelConfig, text)

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        return backward_names.parse_symbol(FusedServeBackwardKernelConfig, text)

    def sets(self) -> Sets:
        return {"hopper-serve": get_fused_serve_backward_kernel_configs}

    def everything(self) -> Sequence[KernelConfig]:
        return get_fused_serve_backward_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        assert isinstance(config, FusedServeBackwardKernelConfig)
        return violations(config, arch)

    def launch_arguments(self, config: KernelConfig, record: bytes, variant: Variant) -> bytes:
        return FUSED.launch_arguments(config, record, variant)

    def preference(self, capability: Capability | None) -> int:
        """First on its own GPUs; else where no other family serves the problem."""
        return 2 if capability == ARCHITECTURE else 0

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        """Smaller head dimensions are filled up."""
        if problem.deterministic:
            return "its sums of dQ differ in their last bits from run to run"
        d_head = next((d for d in HEAD_DIMENSIONS if d >= problem.d_head), problem.d_head)
        return refusal(HEAD_DIMENSIONS, d_head, capability)

    def candidates(self) -> Sequence[KernelConfig]:
        return get_fused_serve_backward_kernel_configs()

    def how_to_build(self) -> str:
        return "KERNELS=hopper-serve or all, for sm_90a"


FAMILY = Sm90FusedBackwardServe()
