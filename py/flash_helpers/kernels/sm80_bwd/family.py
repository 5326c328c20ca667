"""The Ampere family's backward pass: cp.async, ldmatrix and mma.sync."""

from collections.abc import Sequence
from typing import ClassVar

from .. import backward_names
from ..architecture import dotted
from ..contract import KernelConfig, Variant
from ..family import Capability, Family, Sets
from ..problem import AttentionProblem
from .config import AmpereBackwardKernelConfig
from .constraints import MINIMUM_ARCH, violations
from .sets import get_ampere_backward_kernel_configs


class Sm80Backward(Family):
    NAME: ClassVar[str] = AmpereBackwardKernelConfig.FAMILY
    TITLE: ClassVar[str] = "Ampere backward"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 128, 128, 64, 8, 128, 64, 8): ampere_backward' or its symbol "
        "'flash_bwd_sm80_fp16_d128_k128x64w8_q128x64w8'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = AmpereBackwardKernelConfig.HEAD_DIMENSIONS
    GRADIENTS: ClassVar[bool] = True

    def parse(self, text: str) -> KernelConfig | None:
        return backward_names.parse(AmpereBackwardKernelConfig, text)

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        return backward_names.parse_symbol(AmpereBackwardKernelConfig, text)

    def sets(self) -> Sets:
        return {"ampere-bwd": get_ampere_backward_kernel_configs}

    def everything(self) -> Sequence[KernelConfig]:
        return get_ampere_backward_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(_own(config), arch)

    def preference(self, capability: Capability | None) -> int:
        return 1

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        if problem.d_head not in self.HEAD_DIMENSIONS:
            return f"its head dimensions are {', '.join(map(str, self.HEAD_DIMENSIONS))}"
        if capability is not None and capability < MINIMUM_ARCH:
            needed, found = dotted(MINIMUM_ARCH), dotted(capability)
            return f"it needs compute capability {needed}, and this GPU has {found}"
        return None

    def candidates(self) -> Sequence[KernelConfig]:
        return get_ampere_backward_kernel_configs()

    def promise(self, config: KernelConfig) -> tuple[object, ...]:
        """The largest blocks."""
        own = _own(config)
        return own.keys_rows * own.keys_columns, own.queries_rows * own.queries_columns, own

    def how_to_build(self) -> str:
        return "KERNELS=ampere-bwd or all"


def _own(config: KernelConfig) -> AmpereBackwardKernelConfig:
    assert isinstance(config, AmpereBackwardKernelConfig)
    return config


FAMILY = Sm80Backward()
