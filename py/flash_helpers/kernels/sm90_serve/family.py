"""The Hopper family's serving kernels: the forward pass with TMA and wgmma, for prompts."""

from collections.abc import Sequence
from typing import ClassVar

from .. import serve_names
from ..contract import KernelConfig, Variant
from ..family import Capability, Family, Sets
from ..problem import AttentionProblem
from ..sm90_target import ARCHITECTURE, refusal
from .config import HopperServeKernelConfig
from .constraints import HEAD_DIMENSIONS, violations
from .sets import get_hopper_serve_kernel_configs


class Sm90Serve(Family):
    NAME: ClassVar[str] = HopperServeKernelConfig.FAMILY
    TITLE: ClassVar[str] = "Hopper serving"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 128, 128, 2, 2, 2): hopper_serve' or its symbol "
        "'flash_serve_sm90_fp16_d128_n128_g2_b2_q2'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = HEAD_DIMENSIONS
    SERVES: ClassVar[bool] = True
    TARGETS: ClassVar[tuple[str, ...] | None] = ("90a",)

    def parse(self, text: str) -> KernelConfig | None:
        return serve_names.parse(HopperServeKernelConfig, text)

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        return serve_names.parse_symbol(HopperServeKernelConfig, text)

    def sets(self) -> Sets:
        return {"hopper-serve": get_hopper_serve_kernel_configs}

    def everything(self) -> Sequence[KernelConfig]:
        return get_hopper_serve_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(_own(config), arch)

    def launch_arguments(self, config: KernelConfig, record: bytes, variant: Variant) -> bytes:
        from .arguments import pack_launch_arguments  # loads the emulator, which few processes need

        return pack_launch_arguments(_own(config), record)

    def preference(self, capability: Capability | None) -> int:
        """First on its own GPUs; else where no other family serves the problem."""
        return 2 if capability == ARCHITECTURE else 0

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        return refusal(HEAD_DIMENSIONS, problem.d_head, capability)

    def candidates(self) -> Sequence[KernelConfig]:
        return get_hopper_serve_kernel_configs()

    def how_to_build(self) -> str:
        return "KERNELS=hopper-serve or all, for sm_90a"


def _own(config: KernelConfig) -> HopperServeKernelConfig:
    assert isinstance(config, HopperServeKernelConfig)
    return config


FAMILY = Sm90Serve()
