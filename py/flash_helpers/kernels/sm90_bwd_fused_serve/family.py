"""The Hopper family's fused backward pass that serves: packed sequences, and windows."""

from collections.abc import Sequence
from typing import ClassVar

from ..backward_args import ROW_STATS_BLOCK
from ..contract import KernelConfig, Variant
from ..family import Capability
from ..one_set import BackwardFamily
from ..problem import AttentionProblem
from ..sm90_bwd_fused.config import AddBy
from ..sm90_bwd_fused.constraints import HEAD_DIMENSIONS, violations
from ..sm90_bwd_fused.family import FAMILY as FUSED
from ..sm90_target import OnHopper, refusal
from .config import FusedServeBackwardKernelConfig
from .sets import get_fused_serve_backward_kernel_configs


class Sm90FusedBackwardServe(OnHopper, BackwardFamily[FusedServeBackwardKernelConfig]):
    NAME: ClassVar[str] = FusedServeBackwardKernelConfig.FAMILY
    CONFIG = FusedServeBackwardKernelConfig
    SET: ClassVar[str] = "hopper-serve"
    TITLE: ClassVar[str] = "Hopper fused serving backward"
    SPELLINGS: ClassVar[str] = (
        "'(FP16, 128, 128, 64, 2, 2, COPIES): fused_serve_backward' or its symbol "
        "'flash_bwd_serve_sm90_fp16_d128_k128x64s2_ds2_copies'"
    )
    HEAD_DIMENSIONS: ClassVar[tuple[int, ...]] = HEAD_DIMENSIONS
    COMPILE_SECONDS: ClassVar[float] = 2.9
    SERVES: ClassVar[bool] = True

    def configs(self) -> Sequence[FusedServeBackwardKernelConfig]:
        return get_fused_serve_backward_kernel_configs()

    def violations(self, config: KernelConfig, arch: Capability | None = None) -> list[str]:
        own = self.own(config)
        if own.add_by is AddBy.IN_ORDER:
            return ["add_by = IN_ORDER is not supported for kernels that serve: use COPIES."]
        if own.stats_block() != ROW_STATS_BLOCK:
            return [
                f"keys_columns = {own.keys_columns} is not supported for kernels that serve: the "
                f"rows of a sequence are filled up to a multiple of {ROW_STATS_BLOCK}."
            ]
        return violations(own, arch)

    def launch_arguments(self, config: KernelConfig, record: bytes, variant: Variant) -> bytes:
        return FUSED.launch_arguments(config, record, variant)

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        """Smaller head dimensions are filled up."""
        if problem.deterministic:
            return "its sums of dQ differ in their last bits from run to run"
        d_head = next((d for d in HEAD_DIMENSIONS if d >= problem.d_head), problem.d_head)
        return refusal(HEAD_DIMENSIONS, d_head, capability)


FAMILY = Sm90FusedBackwardServe()
