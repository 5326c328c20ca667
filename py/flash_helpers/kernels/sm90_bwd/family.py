"""The Hopper family's backward pass: TMA, wgmma and warp specialisation."""

from collections.abc import Sequence
from typing import ClassVar

from .. import backward_names
from ..contract import KernelConfig, Variant
from ..family import Capability, Family, Sets
from ..problem import AttentionProblem
from ..sm90_target import ARCHITECTURE, refusal
from .config import HopperBackwardKernelConfig
from .constraints import HEAD_DIMENSIONS, violations
from .sets import get_hopper_backward_kernel_configs


class Sm90Backward(Family):
    NAME: ClassVar[str] = HopperBackwardKernelConfig.FAMILY
    TITLE: ClassVar[str] = "Hopper backward"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 128, 128, 64, 2, 128, 128, 2): hopper_backward' or its symbol "
        "'flash_bwd_sm90_fp16_d128_k128x64s2_q128x128s2'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = HEAD_DIMENSIONS
    GRADIENTS: ClassVar[bool] = True
    TARGETS: ClassVar[tuple[str, ...] | None] = ("90a",)

    def parse(self, text: str) -> KernelConfig | None:
        return backward_names.parse(HopperBackwardKernelConfig, text)

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        return backward_names.parse_symbol(HopperBackwardKernelConfig, text)

    def sets(self) -> Sets:
        return {"hopper-bwd": get_hopper_backward_kernel_configs}

    def everything(self) -> Sequence[KernelConfig]:
        return get_hopper_backward_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(_own(config), arch)

    def launch_arguments(self, config: KernelConfig, record: bytes, variant: Variant) -> bytes:
        from .arguments import pack_launch_arguments  # loads the emulator, which few processes need

        return pack_launch_arguments(_own(config), record, variant)

    def preference(self, capability: Capability | None) -> int:
        """On its own GPUs behind the fused kernels alone; else where no other family serves."""
        return 2 if capability == ARCHITECTURE else 0

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        return refusal(HEAD_DIMENSIONS, problem.d_head, capability)

    def candidates(self) -> Sequence[KernelConfig]:
        return get_hopper_backward_kernel_configs()

    def promise(self, config: KernelConfig) -> tuple[object, ...]:
        """The largest blocks."""
        own = _own(config)
        return own.keys_rows * own.keys_columns, own.queries_rows * own.queries_columns, own

    def how_to_build(self) -> str:
        return "KERNELS=hopper-bwd or all, for sm_90a"


def _own(config: KernelConfig) -> HopperBackwardKernelConfig:
    assert isinstance(config, HopperBackwardKernelConfig)
    return config


FAMILY = Sm90Backward()
