"""The Hopper family's fused backward pass: five matmuls in place of seven, and sums of dQ in global
memory, whose last bits depend on the order in which thread blocks come."""

from collections.abc import Sequence
from typing import ClassVar

from .. import backward_names
from ..contract import KernelConfig, Variant
from ..family import Capability, Family, Sets
from ..problem import AttentionProblem
from ..sm90_target import ARCHITECTURE, refusal
from .config import AddBy, FusedBackwardKernelConfig
from .constraints import HEAD_DIMENSIONS, violations
from .sets import get_fused_backward_kernel_configs


class Sm90FusedBackward(Family):
    NAME: ClassVar[str] = FusedBackwardKernelConfig.FAMILY
    TITLE: ClassVar[str] = "Hopper fused backward"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 128, 128, 64, 2, 3, COPIES): fused_backward' or its symbol "
        "'flash_bwd_sm90_fused_fp16_d128_k128x64s2_ds3_copies'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = HEAD_DIMENSIONS
    GRADIENTS: ClassVar[bool] = True
    TARGETS: ClassVar[tuple[str, ...] | None] = ("90a",)

    def parse(self, text: str) -> KernelConfig | None:
        return backward_names.parse(FusedBackwardKernelConfig, text)

    def parse_symbol(self, text: str) -> tuple[KernelConfig, Variant] | None:
        return backward_names.parse_symbol(FusedBackwardKernelConfig, text)

    def sets(self) -> Sets:
        return {"hopper-bwd": get_fused_backward_kernel_configs}

    def everything(self) -> Sequence[KernelConfig]:
        return get_fused_backward_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        return violations(_own(config), arch)

    def launch_arguments(self, config: KernelConfig, record: bytes, variant: Variant) -> bytes:
        """The large kernel's are those of the two-pass kernel of dK and dV; the others read no
        tensor maps."""
        from ..sm90_bwd.arguments import pack_launch_arguments  # loads the emulator

        taken = Variant.KEYS if variant is Variant.KEYS else Variant.DOTS
        return pack_launch_arguments(_own(config).two_pass(), record, taken)

    def preference(self, capability: Capability | None) -> int:
        """First on its own GPUs (measured: docs/results/hopper-backward-h200.md); else last."""
        return 3 if capability == ARCHITECTURE else 0

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        if problem.deterministic:
            return "its sums of dQ differ in their last bits from run to run"
        return refusal(HEAD_DIMENSIONS, problem.d_head, capability)

    def candidates(self) -> Sequence[KernelConfig]:
        return get_fused_backward_kernel_configs()

    def promise(self, config: KernelConfig) -> tuple[object, ...]:
        """What the same measurement found fastest: sums added by the copy engine, and three blocks
        of dS at head dimension 64; at 96 and 128 two, as in most of the longest problems."""
        own = _own(config)
        return own.add_by is AddBy.COPIES, own.ds_stages == (3 if own.d_head == 64 else 2), own

    def how_to_build(self) -> str:
        return "KERNELS=hopper-bwd or all, for sm_90a"


def _own(config: KernelConfig) -> FusedBackwardKernelConfig:
    assert isinstance(config, FusedBackwardKernelConfig)
    return config


FAMILY = Sm90FusedBackward()
