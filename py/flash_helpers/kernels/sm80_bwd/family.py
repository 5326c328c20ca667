"""The Ampere family's backward pass: cp.async, ldmatrix and mma.sync."""

from collections.abc import Sequence
from typing import ClassVar

from ..contract import KernelConfig
from ..family import Capability
from ..one_set import BackwardFamily
from ..problem import AttentionProblem
from ..sm80_target import refusal
from .config import AmpereBackwardKernelConfig
from .constraints import violations
from .sets import get_ampere_backward_kernel_configs


class Sm80Backward(BackwardFamily[AmpereBackwardKernelConfig]):
    NAME: ClassVar[str] = AmpereBackwardKernelConfig.FAMILY
    CONFIG = AmpereBackwardKernelConfig
    SET: ClassVar[str] = "ampere-bwd"
    TITLE: ClassVar[str] = "Ampere backward"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 128, 128, 64, 8, 128, 64, 8): ampere_backward' or its symbol "
        "'flash_bwd_sm80_fp16_d128_k128x64w8_q128x64w8'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = AmpereBackwardKernelConfig.HEAD_DIMENSIONS
    ONE_PTX: ClassVar[bool] = True
    COMPILE_SECONDS: ClassVar[float] = 1.8

    def configs(self) -> Sequence[AmpereBackwardKernelConfig]:
        return get_ampere_backward_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(self.own(config), arch)

    def preference(self, capability: Capability | None) -> int:
        return 1

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        if problem.d_head not in self.HEAD_DIMENSIONS:
            return f"its head dimensions are {', '.join(map(str, self.HEAD_DIMENSIONS))}"
        return refusal(capability)

    def promise(self, config: KernelConfig) -> tuple[object, ...]:
        """The largest blocks."""
        own = self.own(config)
        return own.keys_rows * own.keys_columns, own.queries_rows * own.queries_columns, own


FAMILY = Sm80Backward()
