"""The short ways of the backward pass, and the choice of its kernels."""

from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any

import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.problem import AttentionProblem

from . import heads
from .gradients import launch_cache, scratch_shapes
from .library import load_library
from .memory import without_memory
from .surroundings import new_tensors, nothing_done, surroundings

Sizes = tuple[int, int, int, int]  # batch, length, heads, d_head


@cache
def plain_gradients(heads_first: bool) -> Callable[..., Any]:
    """(d_o, d_lse, (q, k, v, o, lse), (softmax_scale, causal, deterministic), wanted) ->
    (d_q, d_k, d_v, None), with the kernels queued; None where nothing was done, as something has to
    see the call or none like it is remembered. q, k and v are those of `plain_call`; with
    `heads_first` tensors are (batch, heads, seq, d_head)."""
    calls = _calls()
    if calls is None:
        return nothing_done
    return calls.attend_heads_first if heads_first else calls.attend  # type: ignore[no-any-return]


@cache
def seen_gradients() -> Callable[..., Any]:
    """The same of a call that PyTorch has seen as an operation, and with one argument more,
    `heads_first`: tensors are (batch, heads, seq, d_head)."""
    calls = _calls()
    return nothing_done if calls is None else calls.compute


@cache
def _calls() -> Any:
    known = launch_cache()
    if known is None:
        return None
    return load_library().PlainGradients(
        known,
        surroundings(),
        new_tensors(),
        choose=_choose,
        row_stats_prototype=partial(_scratch_prototype, "row_stats"),
        d_q_sums_prototype=partial(_scratch_prototype, "d_q_sums"),
    )


def _choose(
    q: torch.Tensor, q_sizes: Sizes, k_sizes: Sizes, causal: bool, deterministic: bool
) -> KernelConfig | None:
    """None: there are none, or none for heads as they are, and whoever called goes on with
    something else."""
    try:
        found = chosen(q.dtype, q_sizes, k_sizes, causal, deterministic, q.device)
    except ValueError:
        return None
    return found if is_dense(found, q_sizes[3]) else None


@lru_cache(maxsize=4096)
def chosen(
    dtype: torch.dtype,
    q_shape: Sizes,
    k_shape: Sizes,
    causal: bool,
    deterministic: bool,
    device: torch.device,
) -> KernelConfig:
    """The kernels of the gradients (heads.gradient_kernels). Made once for a kind of call, as in
    the forward pass."""
    batch, seqlen_q, n_heads, d_head = q_shape
    _, seqlen_k, n_heads_kv, _ = k_shape
    problem = AttentionProblem(
        DType.from_torch_dtype(dtype), batch, seqlen_q, seqlen_k, n_heads, n_heads_kv, d_head,
        causal=causal, gradients=True, deterministic=deterministic,
    )  # fmt: skip
    return heads.gradient_kernels(problem, device)


def is_dense(kernels: KernelConfig, d_head: int) -> bool:
    """Whether they read heads of this dimension as they are."""
    return kernels.d_head == d_head and not kernels.SERVES


def _scratch_prototype(
    name: str, config: KernelConfig, q: torch.Tensor, q_sizes: Sizes, k_sizes: Sizes, causal: bool
) -> torch.Tensor | None:
    """None of what the kernels need no memory for."""
    shape = scratch_shapes(config, q_sizes, k_sizes, causal).get(name)
    return None if shape is None else without_memory(shape, q.device)
