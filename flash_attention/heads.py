"""Which kernels attend with heads of a dimension that no dense kernel has, or whose values are
narrower than its keys.

Heads are filled up with zeros to the next dimension that dense kernels have, by copies, or go to
the kernels that serve, which take every multiple of 8 as it lies. The latter, unless the GPU has
dense kernels that it prefers to those: a copy costs what it moves, the scores their square.
Gradients are filled up in either case.
"""

from dataclasses import replace
from functools import lru_cache

import torch

from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.family import Capability, Family
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import by_preference, family_of, on_change
from flash_helpers.kernels.serve_config import ServeKernelConfig, ServeSizes

from . import dispatch, jit
from .interface import KernelNotBuiltError, built_kernel_id
from .serving.gradients import smallest
from .serving.launch import fitting_sizes


def dense_width(problem: AttentionProblem, device: torch.device) -> int | None:
    """The head dimension of the dense kernels that compute the output, and to which q, k and v are
    filled up; None: those that serve do. Raises ValueError, or KernelNotBuiltError, where none
    does."""
    found = _next_dense(problem, _capability(device))
    if found is not None and found[0] == problem.d_head == problem.d_v:
        return problem.d_head  # whether it is built is said where it is chosen
    return _width_of_others(problem, device)


@lru_cache(maxsize=4096)
def _width_of_others(problem: AttentionProblem, device: torch.device) -> int | None:
    capability = _capability(device)
    found = _next_dense(problem, capability)
    if found is not None and not _is_built(_filled_up(problem, found[0]), device):
        found = None
    try:
        serving = _serving(problem, device)
    except KernelNotBuiltError:
        if found is None:
            raise
        return found[0]
    if found is None or serving.shares_keys():  # few queries: copies would be most of the work
        return None
    width, dense = found
    is_worth_it = dense.preference(capability) > family_of(serving).preference(capability)
    return width if is_worth_it else None


def gradient_kernels(problem: AttentionProblem, device: torch.device) -> KernelConfig:
    """The kernels of the gradients of heads of this dimension or narrower ones: dense ones of the
    next dimension that has them, or ones that serve where those are preferred on the GPU, or are
    all there is. Raises ValueError, or KernelNotBuiltError."""
    capability = _capability(device)
    found = _next_dense(problem, capability)
    if found is not None:
        width, dense = found
        (first, *_) = by_preference(capability, gradients=True, serves=True)
        is_first = dense.preference(capability) >= first.preference(capability)
        filled = _filled_up(problem, width)
        if width == problem.d_head or (is_first and _is_built(filled, device)):
            return dispatch.choose(filled, device)
    serving = smallest(problem, device)
    _require_built(serving, device)
    return serving


def kernels(problem: AttentionProblem, device: torch.device) -> KernelConfig:
    """Of the output, or of its gradients. Raises ValueError, or KernelNotBuiltError."""
    if problem.gradients:
        return gradient_kernels(problem, device)
    width = dense_width(problem, device)
    if width is None:
        return _serving(problem, device)
    return dispatch.choose(_filled_up(problem, width), device)


def _next_dense(
    problem: AttentionProblem, capability: Capability | None
) -> tuple[int, Family] | None:
    """The smallest head dimension that holds the problem's and that dense kernels have there, and
    the family that is asked for it first."""
    families = by_preference(capability, gradients=problem.gradients)
    for width in sorted({d for family in families for d in family.HEAD_DIMENSIONS}):
        if width < problem.d_head:
            continue
        filled = _filled_up(problem, width)
        for family in families:
            if family.refusal(filled, capability) is None:
                return width, family
    return None


def _serving(problem: AttentionProblem, device: torch.device) -> ServeKernelConfig:
    """Raises KernelNotBuiltError."""
    sizes = ServeSizes(
        batch=problem.batch, n_rows=problem.batch * problem.seqlen_q, seqlen_q=problem.seqlen_q,
        n_heads_q=problem.n_heads, n_heads_kv=problem.n_kv_heads,
        d_head=_multiple_of_8(problem.d_head), d_v=_multiple_of_8(problem.d_v),
    )  # fmt: skip
    config = fitting_sizes(sizes, problem.dtype, problem.seqlen_k, device)
    _require_built(config, device)
    return config


def _require_built(config: KernelConfig, device: torch.device) -> None:
    """Raises KernelNotBuiltError; what can be compiled on first use counts as built."""
    if device.type == "cpu" or built_kernel_id(config, config.first_variant()) is not None:
        return
    if refusal := jit.refusal():
        raise KernelNotBuiltError(f"{config.short_form()} is not in this build, and {refusal}")


def _is_built(problem: AttentionProblem, device: torch.device) -> bool:
    """Or can be compiled."""
    try:
        dispatch.choose(problem, device)
    except KernelNotBuiltError:
        return False
    return True


def _filled_up(problem: AttentionProblem, width: int) -> AttentionProblem:
    return replace(problem, d_head=width, d_v=width)


def _multiple_of_8(d_head: int) -> int:
    return d_head + -d_head % 8


def _capability(device: torch.device) -> Capability | None:
    return None if device.type == "cpu" else torch.cuda.get_device_capability(device)


forget = _width_of_others.cache_clear  # what was chosen before
on_change(forget)
