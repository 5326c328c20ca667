"""The Hopper family's serving kernels for MLA: many query heads that read a latent cache."""

from collections.abc import Sequence
from typing import ClassVar

from ..contract import KernelConfig, Variant
from ..family import Capability
from ..one_set import ServeFamily
from ..problem import AttentionProblem
from ..sm90_target import OnHopper
from .config import HopperMlaKernelConfig
from .constraints import ALLOWED_VALUES, violations
from .sets import get_hopper_mla_kernel_configs


class Sm90ServeMla(OnHopper, ServeFamily[HopperMlaKernelConfig]):
    NAME: ClassVar[str] = HopperMlaKernelConfig.FAMILY
    CONFIG = HopperMlaKernelConfig
    SET: ClassVar[str] = "hopper-mla"
    TITLE: ClassVar[str] = "Hopper MLA"
    SPELLINGS: ClassVar[str] = "'flash_mla_sm90_fp16_d576_r64_c64_w8_s2'"
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = ALLOWED_VALUES["d_head"]
    COMPILE_SECONDS: ClassVar[float] = 4.5

    def configs(self) -> Sequence[HopperMlaKernelConfig]:
        return get_hopper_mla_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(self.own(config), arch)

    def launch_arguments(self, config: KernelConfig, record: bytes, variant: Variant) -> bytes:
        from .arguments import pack_launch_arguments  # loads the emulator, which few processes need

        return pack_launch_arguments(self.own(config), record)

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        if (problem.d_head, problem.d_v) != (576, 512):
            return "it takes keys of 576 elements, of which 512 are the value (qv)"
        return super().refusal(problem, capability)


FAMILY = Sm90ServeMla()
