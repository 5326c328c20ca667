"""The Hopper family: TMA, wgmma and warp specialisation."""

from collections.abc import Sequence
from typing import ClassVar

from ..contract import KernelConfig, Variant
from ..family import Capability, Sets
from ..one_set import OneSet
from ..sm90_target import OnHopper
from .config import HopperForwardKernelConfig
from .constraints import HEAD_DIMENSIONS, violations
from .names import SPELLINGS, parse_short_form, parse_symbol
from .sets import get_hopper_kernel_configs, get_hopper_smoke_kernel_configs


class Sm90Forward(OnHopper, OneSet[HopperForwardKernelConfig]):
    NAME: ClassVar[str] = HopperForwardKernelConfig.FAMILY
    CONFIG = HopperForwardKernelConfig
    SET: ClassVar[str] = "hopper"
    TITLE: ClassVar[str] = "Hopper"
    SPELLINGS: ClassVar[str] = SPELLINGS
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = HEAD_DIMENSIONS
    COMPILE_SECONDS: ClassVar[float] = 1.4

    def parse(self, text: str) -> KernelConfig | None:
        return parse_symbol(text) or parse_short_form(text)

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        config = parse_symbol(text)
        return (config, Variant.ANY) if config is not None else None

    def sets(self) -> Sets:
        return {**super().sets(), "hopper-smoke": get_hopper_smoke_kernel_configs}

    def configs(self) -> Sequence[HopperForwardKernelConfig]:
        return get_hopper_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        own = self.own(config)
        narrow = ["d_v is of the serving family: values are as wide as keys."] if own.d_v else []
        return narrow + violations(own, arch)

    def launch_arguments(self, config: KernelConfig, record: bytes, variant: Variant) -> bytes:
        from .arguments import pack_launch_arguments  # loads the emulator, which few processes need

        return pack_launch_arguments(self.own(config), record)

    def promise(self, config: KernelConfig) -> tuple[object, ...]:
        """Every overlap, then the most work for each tile of shared memory."""
        own = self.own(config)
        return own.overlap, own.ping_pong, own.max_policy, own.block_m() * own.block_n, own


FAMILY = Sm90Forward()
