"""The Ampere family's backward pass that serves: sequences of different lengths, windows and soft
caps, on every GPU from 8.0 on."""

from collections.abc import Sequence
from typing import ClassVar

from .. import backward_names
from ..architecture import dotted
from ..contract import KernelConfig, Variant
from ..family import Capability, Family, Sets
from ..problem import AttentionProblem
from ..sm80_bwd.constraints import MINIMUM_ARCH, violations
from .config import AmpereServeBackwardKernelConfig
from .sets import get_ampere_serve_backward_kernel_configs


class Sm80BackwardServe(Family):
    NAME: ClassVar[str] = AmpereServeBackwardKernelConfig.FAMILY
    TITLE: ClassVar[str] = "Ampere serving backward"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 128, 64, 32, 4, 64, 64, 4): ampere_serve_backward' or its symbol "
        "'flash_bwd_serve_sm80_fp16_d128_k64x32w4_q64x64w4'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = AmpereServeBackwardKernelConfig.HEAD_DIMENSIONS
    GRADIENTS: ClassVar[bool] = True
    SERVES: ClassVar[bool] = True

    def parse(self, text: str) -> KernelConfig | None:
        return backward_names.parse(AmpereServeBackwardKernelConfig, text)

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        return backward_names.parse_symbol(AmpereServeBackwardKernelConfig, text)

    def sets(self) -> Sets:
        return {"serve": get_ampere_serve_backward_kernel_configs}

    def everything(self) -> Sequence[KernelConfig]:
        return get_ampere_serve_backward_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        assert isinstance(config, AmpereServeBackwardKernelConfig)
        return violations(config, arch)

    def preference(self, capability: Capability | None) -> int:
        return 1

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        """Smaller head dimensions are filled up."""
        if problem.d_head > max(self.HEAD_DIMENSIONS):
            return f"its head dimensions are up to {max(self.HEAD_DIMENSIONS)}"
        if capability is not None and capability < MINIMUM_ARCH:
            needed, found = dotted(MINIMUM_ARCH), dotted(capability)
            return f"it needs compute capability {needed}, and this GPU has {found}"
        return None

    def candidates(self) -> Sequence[KernelConfig]:
        return get_ampere_serve_backward_kernel_configs()

    def how_to_build(self) -> str:
        return "KERNELS=serve or all"


FAMILY = Sm80BackwardServe()
