"""The Hopper family's serving kernels: the forward pass with TMA and wgmma, for prompts."""

from collections.abc import Sequence
from typing import ClassVar

from ..contract import KernelConfig, Variant
from ..family import Capability
from ..one_set import ServeFamily
from ..sm90_target import OnHopper
from .config import HopperServeKernelConfig
from .constraints import HEAD_DIMENSIONS, violations
from .sets import get_hopper_serve_kernel_configs


class Sm90Serve(OnHopper, ServeFamily[HopperServeKernelConfig]):
    NAME: ClassVar[str] = HopperServeKernelConfig.FAMILY
    CONFIG = HopperServeKernelConfig
    SET: ClassVar[str] = "hopper-serve"
    TITLE: ClassVar[str] = "Hopper serving"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 128, 128, 2, 2, 2): hopper_serve' or its symbol "
        "'flash_serve_sm90_fp16_d128_n128_g2_b2_q2'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = HEAD_DIMENSIONS
    COMPILE_SECONDS: ClassVar[float] = 3.0

    def configs(self) -> Sequence[HopperServeKernelConfig]:
        return get_hopper_serve_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(self.own(config), arch)

    def launch_arguments(self, config: KernelConfig, record: bytes, variant: Variant) -> bytes:
        from .arguments import pack_launch_arguments  # loads the emulator, which few processes need

        return pack_launch_arguments(self.own(config), record)


FAMILY = Sm90Serve()
