"""The Ampere family's backward pass: cp.async, ldmatrix and mma.sync."""

from collections.abc import Sequence
from typing import ClassVar

from ..architecture import dotted
from ..contract import KernelConfig, Variant
from ..family import Capability, Family, Sets
from ..problem import AttentionProblem
from .config import AmpereBackwardKernelConfig
from .constraints import HEAD_DIMENSIONS, MINIMUM_ARCH, violations
from .names import SPELLINGS, parse_short_form, parse_symbol
from .sets import get_ampere_backward_kernel_configs


class Sm80Backward(Family):
    NAME: ClassVar[str] = AmpereBackwardKernelConfig.FAMILY
    TITLE: ClassVar[str] = "Ampere backward"
    SPELLINGS: ClassVar[str] = SPELLINGS
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = HEAD_DIMENSIONS
    GRADIENTS: ClassVar[bool] = True

    def parse(self, text: str) -> KernelConfig | None:
        return parse_symbol(text) or parse_short_form(text)

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        for variant in (Variant.DOTS, Variant.QUERIES, Variant.KEYS):
            suffix = "" if variant is Variant.KEYS else f"_{variant.value}"
            config = parse_symbol(text.removesuffix(suffix)) if text.endswith(suffix) else None
            if config is not None:
                return config, variant
        return None

    def sets(self) -> Sets:
        return {"ampere-bwd": get_ampere_backward_kernel_configs}

    def everything(self) -> Sequence[KernelConfig]:
        return get_ampere_backward_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(_own(config), arch)

    def preference(self, capability: Capability | None) -> int:
        return 1

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        if problem.d_head not in HEAD_DIMENSIONS:
            return f"its head dimensions are {', '.join(map(str, HEAD_DIMENSIONS))}"
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
