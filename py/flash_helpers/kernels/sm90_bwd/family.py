"""The Hopper family's backward pass: TMA, wgmma and warp specialisation."""

from collections.abc import Sequence
from typing import ClassVar

from ..contract import KernelConfig, Variant
from ..family import Capability
from ..one_set import BackwardFamily
from ..sm90_target import ARCHITECTURE, OnHopper
from .config import HopperBackwardKernelConfig
from .constraints import HEAD_DIMENSIONS, violations
from .sets import get_hopper_backward_kernel_configs


class Sm90Backward(OnHopper, BackwardFamily[HopperBackwardKernelConfig]):
    NAME: ClassVar[str] = HopperBackwardKernelConfig.FAMILY
    CONFIG = HopperBackwardKernelConfig
    SET: ClassVar[str] = "hopper-bwd"
    TITLE: ClassVar[str] = "Hopper backward"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 128, 128, 64, 2, 128, 128, 2): hopper_backward' or its symbol "
        "'flash_bwd_sm90_fp16_d128_k128x64s2_q128x128s2'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = HEAD_DIMENSIONS
    COMPILE_SECONDS: ClassVar[float] = 1.4

    def configs(self) -> Sequence[HopperBackwardKernelConfig]:
        return get_hopper_backward_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(self.own(config), arch)

    def launch_arguments(self, config: KernelConfig, record: bytes, variant: Variant) -> bytes:
        from .arguments import pack_launch_arguments  # loads the emulator, which few processes need

        return pack_launch_arguments(self.own(config), record, variant)

    def preference(self, capability: Capability | None) -> int:
        """On its own GPUs behind the fused kernels alone; else where no other family serves."""
        return 3 if capability == ARCHITECTURE else 0

    def promise(self, config: KernelConfig) -> tuple[object, ...]:
        """The largest blocks."""
        own = self.own(config)
        return own.keys_rows * own.keys_columns, own.queries_rows * own.queries_columns, own


FAMILY = Sm90Backward()
