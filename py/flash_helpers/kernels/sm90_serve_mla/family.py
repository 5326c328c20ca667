"""The Hopper family's serving kernels for MLA: many query heads that read a latent cache."""

from collections.abc import Sequence
from typing import ClassVar

from .. import serve_names
from ..contract import KernelConfig, Variant
from ..family import Capability, Family, Sets
from ..problem import AttentionProblem
from ..sm90_target import ARCHITECTURE, refusal
from .config import HopperMlaKernelConfig
from .constraints import ALLOWED_VALUES, violations
from .sets import get_hopper_mla_kernel_configs


class Sm90ServeMla(Family):
    NAME: ClassVar[str] = HopperMlaKernelConfig.FAMILY
    TITLE: ClassVar[str] = "Hopper MLA"
    SPELLINGS: ClassVar[str] = "'flash_mla_sm90_fp16_d576_r64_c64_w8_s2'"
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = ALLOWED_VALUES["d_head"]
    SERVES: ClassVar[bool] = True
    TARGETS: ClassVar[tuple[str, ...] | None] = ("90a",)

    def parse(self, text: str) -> KernelConfig | None:
        return serve_names.parse(HopperMlaKernelConfig, text)

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        return serve_names.parse_symbol(HopperMlaKernelConfig, text)

    def sets(self) -> Sets:
        return {"hopper-mla": get_hopper_mla_kernel_configs}

    def everything(self) -> Sequence[KernelConfig]:
        return get_hopper_mla_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(_own(config), arch)

    def launch_arguments(self, config: KernelConfig, record: bytes, variant: Variant) -> bytes:
        from .arguments import pack_launch_arguments  # loads the emulator, which few processes need

        return pack_launch_arguments(_own(config), record)

    def preference(self, capability: Capability | None) -> int:
        """First on its own GPUs; else where no other family serves the problem."""
        return 2 if capability == ARCHITECTURE else 0

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        if (problem.d_head, problem.d_v) != (576, 512):
            return "it takes keys of 576 elements, of which 512 are the value (qv)"
        return refusal(self.HEAD_DIMENSIONS, problem.d_head, capability)

    def candidates(self) -> Sequence[KernelConfig]:
        return get_hopper_mla_kernel_configs()

    def how_to_build(self) -> str:
        return "KERNELS=hopper-mla or all, for sm_90a"


def _own(config: KernelConfig) -> HopperMlaKernelConfig:
    assert isinstance(config, HopperMlaKernelConfig)
    return config


FAMILY = Sm90ServeMla()
