"""Which family takes a serving call, and with which of its configurations."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.backward_config import BackwardKernelConfig
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.family import Capability, Family
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import by_preference, on_change, violations
from flash_helpers.kernels.serve_config import ServeKernelConfig

from ..interface import KernelNotBuiltError

Config = TypeVar("Config", ServeKernelConfig, BackwardKernelConfig)


def best(
    kind: type[Config],
    problem: AttentionProblem,
    device: torch.device,
    *,
    cost: Callable[[Config], Any],
    refusal: Callable[[Config], str | None] = lambda config: None,
) -> Config:
    """Of the first family that takes `problem`, the configuration of `kind` that costs the least of
    those that hold its head dimension and are not refused. Raises KernelNotBuiltError with every
    family's reason where none does."""
    capability = None if device.type == "cpu" else torch.cuda.get_device_capability(device)
    reasons = []
    for family in by_preference(capability, gradients=kind.GRADIENTS, serves=True):
        if (reason := family.refusal(problem, capability)) is None:
            fitting = _fitting(family, kind, problem.dtype, problem.d_head, capability)
            if taking := [config for config in fitting if refusal(config) is None]:
                found: Config = min(taking, key=cost)
                return found
            reason = refusal(fitting[0]) if fitting else "it has no kernel for this GPU"
        reasons.append(f"the {family.TITLE} family does not: {reason}")
    does = "computes gradients of" if kind.GRADIENTS else "takes"
    raise KernelNotBuiltError(f"no kernel {does} {problem} on {device}; {'; '.join(reasons)}")


@cache
def _fitting(
    family: Family,
    kind: type[KernelConfig],
    dtype: DType,
    d_head: int,
    capability: Capability | None,
) -> list[Any]:
    """The family's configurations of `kind` that hold the head dimension and can be built, found
    once: making and checking all of them takes longer than the rest of a call's checks."""
    return [
        config
        for config in family.candidates()
        if isinstance(config, kind)
        and config.dtype is dtype
        and config.d_head >= d_head
        and not violations(config, capability)
    ]


on_change(_fitting.cache_clear)
