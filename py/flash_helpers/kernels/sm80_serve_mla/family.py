"""The Ampere family's serving kernels for MLA: new tokens that read a latent cache."""

from collections.abc import Sequence
from typing import ClassVar

from ..contract import KernelConfig
from ..family import Capability
from ..one_set import ServeFamily
from ..problem import AttentionProblem
from ..sm80_target import refusal
from .config import AmpereMlaKernelConfig
from .constraints import ALLOWED_VALUES, violations
from .sets import get_ampere_mla_kernel_configs


class Sm80ServeMla(ServeFamily[AmpereMlaKernelConfig]):
    NAME: ClassVar[str] = AmpereMlaKernelConfig.FAMILY
    CONFIG = AmpereMlaKernelConfig
    SET: ClassVar[str] = "mla"
    TITLE: ClassVar[str] = "Ampere MLA"
    SPELLINGS: ClassVar[str] = "'flash_mla_sm80_fp16_d576_r16_c64_w8_s3'"
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = ALLOWED_VALUES["d_head"]
    ONE_PTX: ClassVar[bool] = True
    COMPILE_SECONDS: ClassVar[float] = 2.2

    def configs(self) -> Sequence[AmpereMlaKernelConfig]:
        return get_ampere_mla_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(self.own(config), arch)

    def preference(self, capability: Capability | None) -> int:
        return 1

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        if (problem.d_head, problem.d_v) != (576, 512):
            return "it takes keys of 576 elements, of which 512 are the value (qv)"
        return refusal(capability)


FAMILY = Sm80ServeMla()
