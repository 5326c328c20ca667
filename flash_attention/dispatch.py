"""Which family of kernels serves a problem, and with which configuration."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.family import Capability, Family
from flash_helpers.kernels.registry import by_preference
from flash_helpers.kernels.variants import has_kernel_for

from .checks.arguments import SUPPORTED_DEVICES
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


def choose(problem: Problem) -> KernelConfig:
    """The configuration that serves the problem.

    The families are asked in the order of their preference for the GPU; where a build lacks the
    kernels of one, the next is asked.

    Raises ValueError that says why, for each family, it does not; KernelNotBuiltError (a
    ValueError) where only the build lacks the kernel.
    """
    if problem.device.type not in SUPPORTED_DEVICES:
        raise ValueError(f"no kernel takes {problem}: it runs on cuda and cpu (the emulator)")
    emulated = problem.device.type == "cpu"
    capability = None if emulated else torch.cuda.get_device_capability(problem.device)
    refusals = []
    not_built = None
    for family in by_preference(capability):
        reason = refusal(family, problem, capability)
        if reason is not None:
            refusals.append(f"the {family.TITLE} family does not: {reason}")
            continue
        try:
            return choose_from(family, problem)
        except KernelNotBuiltError as error:
            not_built = not_built or error
            if emulated:  # which has nothing to lack: the build said what it may choose from
                break
    raise not_built or ValueError(f"no kernel takes {problem}; {'; '.join(refusals)}")


def refusal(family: Family, problem: Problem, capability: Capability | None) -> str | None:
    """Why the family's kernels cannot serve the problem; None: they can, where built."""
    dtypes = [dtype.to_torch_dtype() for dtype in DType]
    if problem.dtype not in dtypes:
        return f"its dtypes are {' and '.join(map(str, dtypes))}"
    return family.refusal(problem.d_head, capability)


def choose_from(family: Family, problem: Problem) -> KernelConfig:
    """What was measured to be fast; where no table has it, what the family promises most of.
    Raises KernelNotBuiltError."""
    try:
        return tuned_config(
            problem.dtype, problem.d_head, problem.seqlen_q, problem.seqlen_k,
            causal=problem.causal, device=problem.device, family=family.NAME,
        )  # fmt: skip
    except LookupError:
        wanted = (DType.from_torch_dtype(problem.dtype), problem.d_head)
    emulated = family.candidates() if problem.device.type == "cpu" else ()
    built = [
        config
        for config in emulated or available_kernels()
        if config.FAMILY == family.NAME
        and not config.kept_for_study()
        and (config.dtype, config.d_head) == wanted
    ]
    lengths = (problem.seqlen_q, problem.seqlen_k, problem.causal)
    fitting = [config for config in built if has_kernel_for(config, *lengths)]
    if fitting:
        return max(fitting, key=family.promise)
    raise KernelNotBuiltError(
        f"this build has no kernel of the {family.TITLE} family for {problem}, and {len(built)} "
        f"for {wanted[0].name} and head dimension {wanted[1]}: build with {family.how_to_build()}"
    )
