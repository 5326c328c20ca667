"""The Hopper family: TMA, wgmma and warp specialisation."""

from collections.abc import Sequence
from typing import ClassVar

from ..contract import KernelConfig, Variant
from ..family import Capability, Family, Sets
from ..problem import AttentionProblem
from ..sm90_target import ARCHITECTURE, refusal
from .config import HopperForwardKernelConfig
from .constraints import HEAD_DIMENSIONS, violations
from .names import SPELLINGS, parse_short_form, parse_symbol
from .sets import get_hopper_kernel_configs, get_hopper_smoke_kernel_configs


class Sm90Forward(Family):
    NAME: ClassVar[str] = HopperForwardKernelConfig.FAMILY
    TITLE: ClassVar[str] = "Hopper"
    SPELLINGS: ClassVar[str] = SPELLINGS
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = HEAD_DIMENSIONS
    TARGETS: ClassVar[tuple[str, ...] | None] = ("90a",)

    def parse(self, text: str) -> KernelConfig | None:
        return parse_symbol(text) or parse_short_form(text)

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        config = parse_symbol(text)
        return (config, Variant.ANY) if config is not None else None

    def sets(self) -> Sets:
        return {
            "hopper": get_hopper_kernel_configs,
            "hopper-smoke": get_hopper_smoke_kernel_configs,
        }

    def everything(self) -> Sequence[KernelConfig]:
        return get_hopper_kernel_configs()

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
        return get_hopper_kernel_configs()

    def promise(self, config: KernelConfig) -> tuple[object, ...]:
        """Every overlap, then the most work for each tile of shared memory."""
        own = _own(config)
        return own.overlap, own.ping_pong, own.max_policy, own.block_m() * own.block_n, own

    def how_to_build(self) -> str:
        return "KERNELS=hopper or all, for sm_90a"


def _own(config: KernelConfig) -> HopperForwardKernelConfig:
    assert isinstance(config, HopperForwardKernelConfig)
    return config


FAMILY = Sm90Forward()
