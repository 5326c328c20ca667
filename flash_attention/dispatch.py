"""Which family of kernels serves a problem, and with which configuration."""

from contextlib import suppress

import torch

from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.family import Family
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import by_preference, violations
from flash_helpers.kernels.variants import has_kernel_for

from . import jit
from .interface import KernelNotBuiltError, available_kernels
from .tuning import tuned_config


def choose(problem: AttentionProblem, device: torch.device) -> KernelConfig:
    """The configuration that serves the problem on a device.

    The families are asked in the order of their preference for the GPU; where a build lacks the
    kernels of one, they are compiled on first use (jit.py). Only where nothing is, the next family
    is asked.

    Raises ValueError that says why, for each family, it does not, and what would be taken;
    KernelNotBuiltError (a ValueError) where only the build lacks the kernel.
    """
    emulated = device.type == "cpu"
    capability = None if emulated else torch.cuda.get_device_capability(device)
    refusals = []
    not_built = ""  # not the exception: its traceback holds this frame, and so all callers' tensors
    for family in by_preference(capability, gradients=problem.gradients):
        reason = family.refusal(problem, capability)
        if reason is not None:
            refusals.append(f"the {family.TITLE} family does not: {reason}")
            continue
        try:
            return _built_or_compiled(family, problem, device)
        except KernelNotBuiltError as error:
            not_built = not_built or str(error)
            if emulated:  # which has nothing to lack: the build said what it may choose from
                break
    if not_built:
        raise KernelNotBuiltError(not_built)
    reasons = "; ".join(refusals)
    raise ValueError(
        f"no kernel takes {problem} on {device}; {reasons}; instead, "
        "torch.nn.functional.scaled_dot_product_attention takes any"
    )


def _built_or_compiled(
    family: Family, problem: AttentionProblem, device: torch.device
) -> KernelConfig:
    """One of the build wherever that has one that serves."""
    try:
        return choose_from(family, problem, device)
    except KernelNotBuiltError:
        if device.type == "cpu" or not jit.is_on():
            raise
    return choose_from(family, problem, device, on_first_use=True)


def choose_from(
    family: Family, problem: AttentionProblem, device: torch.device, *, on_first_use: bool = False
) -> KernelConfig:
    """What was measured to be fast; where no table has it, what the family promises most of. Of
    this build; with `on_first_use`, where the build has none, of every configuration that the GPU
    takes. Raises KernelNotBuiltError."""
    wanted = (problem.dtype, problem.d_head)
    with suppress(LookupError):
        found = tuned_config(
            *wanted, problem.seqlen_q, problem.seqlen_k,
            causal=problem.causal, device=device, family=family.NAME, on_first_use=on_first_use,
        )  # fmt: skip
        if _is_as_repeatable(found, problem):
            return found
    capability = None if device.type == "cpu" else torch.cuda.get_device_capability(device)
    possible = family.candidates() if device.type == "cpu" or on_first_use else ()
    built = [
        config
        for config in possible or available_kernels()
        if config.FAMILY == family.NAME
        and not config.kept_for_study()
        and (config.dtype, config.d_head) == wanted
        and _is_as_repeatable(config, problem)
        and not violations(config, capability)  # of which a GPU's shared memory is one
    ]
    lengths = (problem.seqlen_q, problem.seqlen_k, problem.causal)
    fitting = [config for config in built if has_kernel_for(config, *lengths)]
    if fitting:
        return max(fitting, key=lambda c: (family.suits(c, problem), family.promise(c)))
    raise KernelNotBuiltError(
        f"this build has no kernel of the {family.TITLE} family for {problem}, on {device}, and "
        f"{len(built)} for {wanted[0].name} and head dimension {wanted[1]}: build with "
        f"{family.how_to_build()}"
    )


def _is_as_repeatable(config: KernelConfig, problem: AttentionProblem) -> bool:
    return config.is_deterministic() or not problem.deterministic
