"""The Ampere family's fused backward pass: five matmuls in place of seven, and sums of dQ in global
memory, to which thread blocks add as they come."""

from collections.abc import Sequence
from typing import ClassVar

from ..contract import KernelConfig
from ..family import Capability
from ..one_set import BackwardFamily
from ..problem import AttentionProblem
from ..sm80_target import refusal
from .config import AmpereFusedBackwardKernelConfig
from .constraints import violations
from .sets import get_ampere_fused_backward_kernel_configs


class Sm80FusedBackward(BackwardFamily[AmpereFusedBackwardKernelConfig]):
    NAME: ClassVar[str] = AmpereFusedBackwardKernelConfig.FAMILY
    CONFIG = AmpereFusedBackwardKernelConfig
    SET: ClassVar[str] = "ampere-bwd"
    TITLE: ClassVar[str] = "Ampere fused backward"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 128, 128, 64, 8): ampere_fused_backward' or its symbol "
        "'flash_bwd_sm80_fused_fp16_d128_k128x64w8'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = AmpereFusedBackwardKernelConfig.HEAD_DIMENSIONS
    ONE_PTX: ClassVar[bool] = True
    COMPILE_SECONDS: ClassVar[float] = 1.8

    def configs(self) -> Sequence[AmpereFusedBackwardKernelConfig]:
        return get_ampere_fused_backward_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(self.own(config), arch)

    def preference(self, capability: Capability | None) -> int:
        """In front of the two passes on GPUs (measured: docs/results/hopper-backward-h200.md); in
        the emulator behind them, whose bits are always the same."""
        return 0 if capability is None else 2

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        if problem.deterministic:
            return "its sums of dQ have no order"
        if problem.d_head not in self.HEAD_DIMENSIONS:
            return f"its head dimensions are {', '.join(map(str, self.HEAD_DIMENSIONS))}"
        if refused := refusal(capability):
            return refused
        needs_more = any(
            violations(config, capability)
            for config in self.configs()
            if config.d_head == problem.d_head
        )
        return "its thread blocks need more shared memory than the GPU has" if needs_more else None

    def promise(self, config: KernelConfig) -> tuple[object, ...]:
        """There is one for each head dimension."""
        return (self.own(config),)


FAMILY = Sm80FusedBackward()
