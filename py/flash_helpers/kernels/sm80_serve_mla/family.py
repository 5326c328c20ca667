"""The Ampere family's serving kernels for MLA: new tokens that read a latent cache."""

from collections.abc import Sequence
from typing import ClassVar

from .. import serve_names
from ..architecture import dotted
from ..contract import KernelConfig, Variant
from ..family import Capability, Family, Sets
from ..problem import AttentionProblem
from ..sm80_serve.constraints import MINIMUM_ARCH
from .config import AmpereMlaKernelConfig
from .constraints import ALLOWED_VALUES, violations
from .sets import get_ampere_mla_kernel_configs


class Sm80ServeMla(Family):
    NAME: ClassVar[str] = AmpereMlaKernelConfig.FAMILY
    TITLE: ClassVar[str] = "Ampere MLA"
    SPELLINGS: ClassVar[str] = "'flash_mla_sm80_fp16_d576_r16_c64_w8_s3'"
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = ALLOWED_VALUES["d_head"]
    SERVES: ClassVar[bool] = True

    def parse(self, text: str) -> KernelConfig | None:
        return serve_names.parse(AmpereMlaKernelConfig, text)

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        return serve_names.parse_symbol(AmpereMlaKernelConfig, text)

    def sets(self) -> Sets:
        return {"mla": get_ampere_mla_kernel_configs}

    def everything(self) -> Sequence[KernelConfig]:
        return get_ampere_mla_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        assert isinstance(config, AmpereMlaKernelConfig)
        return violations(config, arch)

    def preference(self, capability: Capability | None) -> int:
        return 1

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        if (problem.d_head, problem.d_v) != (576, 512):
            return "it takes keys of 576 elements, of which 512 are the value (qv)"
        if capability is not None and capability < MINIMUM_ARCH:
            needed, found = dotted(MINIMUM_ARCH), dotted(capability)
            return f"it needs compute capability {needed}, and this GPU has {found}"
        return None

    def candidates(self) -> Sequence[KernelConfig]:
        return get_ampere_mla_kernel_configs()

    def how_to_build(self) -> str:
        return "KERNELS=mla or all"


FAMILY = Sm80ServeMla()
