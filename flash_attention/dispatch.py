"""Which family of kernels serves a problem, and with which configuration.

A family is added in one place, FAMILIES: the first that supports a problem and has a kernel for it
serves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.sets import has_kernel_for
from flash_helpers.kernels.sm80_fwd.config import FlashForwardKernelConfig
from flash_helpers.kernels.sm80_fwd.constraints import ALLOWED_VALUES, MINIMUM_ARCH
from flash_helpers.kernels.steps.previous import PreviousKernelConfig

from .checks.arguments import SUPPORTED_DEVICES
from .hopper_family import Hopper
from .interface import KernelNotBuiltError, available_kernels
from .tuning import tuned_config


@dataclass(frozen=True)
class Problem:
    """What the choice of a kernel depends on. Lengths are at least 1 for q, and 0 for k."""

    dtype: torch.dtype
    d_head: int
    seqlen_q: int
    seqlen_k: int
    causal: bool
    device: torch.device

    def __str__(self) -> str:
        causal = ", causal" if self.causal else ""
        return (
            f"{self.dtype}, head dimension {self.d_head}, lengths {self.seqlen_q} and "
            f"{self.seqlen_k}{causal}, on {self.device}"
        )


class Family(Protocol):
    """Kernels of one design."""

    name: str

    def supports(self, problem: Problem) -> str | None:
        """Why kernels of this family cannot serve the problem; None: they can, where built."""

    def choose(self, problem: Problem) -> KernelConfig:
        """The configuration, as `forward` takes it, for a problem that the family supports.

        Raises KernelNotBuiltError: this build has no such kernel.
        """


class Ampere:
    """cp.async, ldmatrix and mma.sync: compute capability 8.0 and newer, and the emulator."""

    name = "Ampere"

    def supports(self, problem: Problem) -> str | None:
        dims = ALLOWED_VALUES["d_head"]
        if problem.d_head not in dims:
            return f"its head dimensions are {' and '.join(map(str, dims))}"
        dtypes = [dtype.to_torch_dtype() for dtype in DType]
        if problem.dtype not in dtypes:
            return f"its dtypes are {' and '.join(map(str, dtypes))}"
        if problem.device.type not in SUPPORTED_DEVICES:
            return "it runs on cuda and cpu (the emulator)"
        if problem.device.type == "cuda":
            capability = torch.cuda.get_device_capability(problem.device)
            if capability < MINIMUM_ARCH:
                found, needed = (".".join(map(str, c)) for c in (capability, MINIMUM_ARCH))
                return f"it needs compute capability {needed}, and this GPU has {found}"
        return None

    def choose(self, problem: Problem) -> KernelConfig:
        """What was measured to be fast; where no table has it, the largest block that is built."""
        try:
            return tuned_config(
                problem.dtype, problem.d_head, problem.seqlen_q, problem.seqlen_k,
                causal=problem.causal, device=problem.device,
                family=FlashForwardKernelConfig.FAMILY,
            )  # fmt: skip
        except LookupError:
            wanted = (DType.from_torch_dtype(problem.dtype), problem.d_head)
        built = [
            c
            for c in available_kernels()
            if isinstance(c, FlashForwardKernelConfig)
            and not isinstance(c, PreviousKernelConfig)  # kept to be looked at, not to be used
            and (c.dtype, c.d_head) == wanted
        ]
        lengths = (problem.seqlen_q, problem.seqlen_k, problem.causal)
        fitting = [c for c in built if has_kernel_for(c, *lengths)]
        if fitting:
            return max(fitting, key=lambda c: (c.optimized_softmax, c.B_r, c.B_c))
        raise KernelNotBuiltError(
            f"this build has no kernel of the {self.name} family for {problem}, and {len(built)} "
            f"for {wanted[0].name} and head dimension {wanted[1]}: build with KERNELS=tune (head "
            "dimension 128), d64 or all"
        )


# In the order of preference.
FAMILIES: tuple[Family, ...] = (Hopper(), Ampere())


def choose(problem: Problem) -> KernelConfig:
    """The configuration that serves the problem.

    Raises ValueError that says why, for each family, it does not; KernelNotBuiltError (a
    ValueError) where only the build lacks the kernel.
    """
    refusals = []
    not_built = None
    for family in FAMILIES:
        reason = family.supports(problem)
        if reason is not None:
            refusals.append(f"the {family.name} family does not: {reason}")
            continue
        try:
            return family.choose(problem)
        except KernelNotBuiltError as error:
            not_built = not_built or error
    raise not_built or ValueError(f"no kernel takes {problem}; {'; '.join(refusals)}")
