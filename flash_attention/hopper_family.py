"""The Hopper family's part of the choice of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.sm80_fwd.constraints import ALLOWED_VALUES
from flash_helpers.kernels.sm90_fwd.config import HopperForwardKernelConfig
from flash_helpers.kernels.sm90_fwd.constraints import ARCHITECTURE, HEAD_DIMENSIONS
from flash_helpers.kernels.sm90_fwd.sets import get_hopper_kernel_configs

from .interface import KernelNotBuiltError, available_kernels
from .tuning import tuned_config

if TYPE_CHECKING:
    from .dispatch import Problem


class Hopper:
    """TMA, wgmma and warp specialisation: compute capability 9.0; and the emulator, for the head
    dimensions that the Ampere family has not."""

    name = "Hopper"

    def supports(self, problem: Problem) -> str | None:
        if problem.d_head not in HEAD_DIMENSIONS:
            return f"its head dimensions are {', '.join(map(str, HEAD_DIMENSIONS))}"
        dtypes = [dtype.to_torch_dtype() for dtype in DType]
        if problem.dtype not in dtypes:
            return f"its dtypes are {' and '.join(map(str, dtypes))}"
        if problem.device.type == "cpu":
            others = ALLOWED_VALUES["d_head"]
            if problem.d_head not in others:
                return None
            dims = " and ".join(map(str, others))
            return f"on the CPU other kernels serve head dimensions {dims}"
        if problem.device.type != "cuda":
            return "it runs on cuda and cpu (the emulator)"
        capability = torch.cuda.get_device_capability(problem.device)
        if capability != ARCHITECTURE:
            found, needed = (".".join(map(str, c)) for c in (capability, ARCHITECTURE))
            return f"it needs compute capability {needed}, and this GPU has {found}"
        return None

    def choose(self, problem: Problem) -> KernelConfig:
        """What was measured to be fast; where no table has it, what the family is best at in
        general: every overlap, then the most work for each tile of shared memory."""
        try:
            return tuned_config(
                problem.dtype, problem.d_head, problem.seqlen_q, problem.seqlen_k,
                causal=problem.causal, device=problem.device,
                family=HopperForwardKernelConfig.FAMILY,
            )  # fmt: skip
        except LookupError:
            wanted = (DType.from_torch_dtype(problem.dtype), problem.d_head)
        on_cpu = problem.device.type == "cpu"
        kernels = get_hopper_kernel_configs() if on_cpu else available_kernels()
        built = [
            c
            for c in kernels
            if isinstance(c, HopperForwardKernelConfig) and (c.dtype, c.d_head) == wanted
        ]
        if built:
            return max(built, key=promise)
        raise KernelNotBuiltError(
            f"this build has no kernel of the {self.name} family for {wanted[0].name} and head "
            f"dimension {wanted[1]}: build with KERNELS=hopper or all, for sm_90a"
        )


def promise(config: HopperForwardKernelConfig) -> tuple[object, ...]:
    """What a kernel of the family is worth where nothing was measured: larger is better."""
    return (
        config.overlap,
        config.ping_pong,
        config.max_policy,
        config.block_m() * config.block_n,
        config,
    )
