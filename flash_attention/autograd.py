"""`flash_attn_func` where PyTorch records gradients: what the forward pass keeps, and the backward
pass.

Kept are q, k, v, the output and the log-sum-exp; the scores are computed again.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch.autograd.function import FunctionCtx

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.problem import AttentionProblem

from . import dispatch
from .checks.readable import readable
from .gradients import Gradients, backward

# (q, k, v, softmax_scale, causal) -> (o, lse)
Forward = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def attention(
    forward: Forward,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None,
    causal: bool,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(o, lse) as `forward` computes them, and recorded: both can be differentiated, once. Raises
    ValueError, or KernelNotBuiltError, where no kernel could compute the gradients."""
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    if q.dtype in (torch.float16, torch.bfloat16) and q.dim() == 4 and q.numel():
        _require_kernels(q.dtype, q.shape[3], q.device, deterministic)
    found = _Attention.apply(q, k, v, forward, softmax_scale, causal, deterministic)  # type: ignore[no-untyped-call]
    o, lse = found
    return o, lse


def is_recorded(*tensors: Any) -> bool:
    """Whether PyTorch would record a call with these inputs."""
    return torch.is_grad_enabled() and any(
        getattr(x, "requires_grad", False) is True for x in tensors
    )


@cache
def _require_kernels(
    dtype: torch.dtype, d_head: int, device: torch.device, deterministic: bool
) -> None:
    """Asked before the forward pass, and not only when gradients are: hours may lie between."""
    problem = AttentionProblem(
        DType.from_torch_dtype(dtype), 1, 1, 1, 1, 1, d_head,
        gradients=True, deterministic=deterministic,
    )  # fmt: skip
    dispatch.choose(problem, device)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        forward: Forward,
        softmax_scale: float | None,
        causal: bool,
        deterministic: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        o, lse = forward(q, k, v, softmax_scale, causal)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.call = softmax_scale, causal, deterministic
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor | None) -> tuple[Any, ...]:
        d_o, d_lse = grad_outputs
        saved = ctx.saved_tensors
        wanted = tuple(n for n, w in zip("qkv", ctx.needs_input_grad[:3], strict=True) if w)
        options = (*ctx.call, wanted)
        if torch.is_grad_enabled():  # the gradients themselves are recorded (create_graph)
            found = _Gradients.apply(options, d_o, d_lse, *saved)  # type: ignore[no-untyped-call]
        else:
            found = _gradients(options, d_o, d_lse, *saved)
        return (*found, None, None, None, None)


class _Gradients(torch.autograd.Function):
    """The backward pass as a node of the graph: what is refused is to differentiate it again, not
    to ask for a graph."""

    @staticmethod
    def forward(ctx: FunctionCtx, *arguments: Any) -> Gradients:
        return _gradients(*arguments)

    @staticmethod
    def backward(ctx: FunctionCtx, *grad_outputs: Any) -> Any:
        raise NotImplementedError(
            "the gradients of flash_attn_func cannot be differentiated again: there is no double "
            "backward pass; use torch.nn.functional.scaled_dot_product_attention with "
            "torch.nn.attention.SDPBackend.MATH for that"
        )


@lru_cache(maxsize=4096)
def _chosen(problem: AttentionProblem, device: torch.device) -> KernelConfig:
    """Made once for a kind of call, as in the forward pass."""
    return dispatch.choose(problem, device)


def _gradients(
    options: tuple[float | None, bool, bool, tuple[str, ...]],
    d_o: torch.Tensor | None,
    d_lse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
) -> Gradients:
    softmax_scale, causal, deterministic, wanted = options
    if d_o is None and d_lse is None:
        return None, None, None
    if q.numel() == 0:
        d_q, d_k, d_v = (
            torch.zeros_like(x) if name in wanted else None
            for name, x in (("q", q), ("k", k), ("v", v))
        )
        return d_q, d_k, d_v
    batch, seqlen_q, n_heads, d_head = q.shape
    problem = AttentionProblem(
        DType.from_torch_dtype(q.dtype), batch, seqlen_q, k.shape[1], n_heads, k.shape[2], d_head,
        causal=causal, gradients=True, deterministic=deterministic,
    )  # fmt: skip
    config = _chosen(problem, q.device)
    d_o = torch.zeros_like(o) if d_o is None else d_o
    return backward(
        config, readable(d_o), readable(q), readable(k), readable(v), readable(o), lse,
        softmax_scale=softmax_scale, causal=causal,
        d_lse=None if d_lse is None else d_lse.contiguous(), wanted=wanted,
    )  # fmt: skip
