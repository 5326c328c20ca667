"""The Ampere family's backward pass that serves: sequences of different lengths, windows and soft
caps, on every GPU from 8.0 on."""

from collections.abc import Sequence
from typing import ClassVar

from ..contract import KernelConfig
from ..family import Capability
from ..one_set import BackwardFamily
from ..problem import AttentionProblem
from ..sm80_bwd.constraints import violations
from ..sm80_target import refusal
from .config import AmpereServeBackwardKernelConfig
from .sets import get_ampere_serve_backward_kernel_configs


class Sm80BackwardServe(BackwardFamily[AmpereServeBackwardKernelConfig]):
    NAME: ClassVar[str] = AmpereServeBackwardKernelConfig.FAMILY
    CONFIG = AmpereServeBackwardKernelConfig
    SET: ClassVar[str] = "serve"
    TITLE: ClassVar[str] = "Ampere serving backward"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 128, 64, 32, 4, 64, 64, 4): ampere_serve_backward' or its symbol "
        "'flash_bwd_serve_sm80_fp16_d128_k64x32w4_q64x64w4'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = AmpereServeBackwardKernelConfig.HEAD_DIMENSIONS
    ONE_PTX: ClassVar[bool] = True
    COMPILE_SECONDS: ClassVar[float] = 1.9
    SERVES: ClassVar[bool] = True

    def configs(self) -> Sequence[AmpereServeBackwardKernelConfig]:
        return get_ampere_serve_backward_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(self.own(config), arch)

    def preference(self, capability: Capability | None) -> int:
        return 1

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        """Smaller head dimensions are filled up."""
        if problem.d_head > max(self.HEAD_DIMENSIONS):
            return f"its head dimensions are up to {max(self.HEAD_DIMENSIONS)}"
        return refusal(capability)


FAMILY = Sm80BackwardServe()
