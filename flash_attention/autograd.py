"""`flash_attn_func` where PyTorch records gradients: what the forward pass keeps, and the backward
pass.

Kept are q, k, v, the output and the log-sum-exp; the scores are computed again.
"""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import Any

import torch
from torch._C import _are_functorch_transforms_active
from torch.autograd.function import FunctionCtx

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.problem import AttentionProblem

from . import dispatch
from .checks.eager import is_watched, is_wrapped
from .checks.readable import readable, writable_like
from .checks.scale import with_positive_scale
from .gradients import Gradients, gradients_of
from .torch_op.definition import wanted_bits

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
    there = q.device.type == "cpu" or torch.cuda.is_available()  # also of tensors without data
    if there and q.dtype in (torch.float16, torch.bfloat16) and q.dim() == 4 and q.numel():
        _require_kernels(q.dtype, int(q.shape[3]), q.device, deterministic)
    o, lse = _apply(_Attention, q, k, v, forward, softmax_scale, causal, deterministic)
    return o, lse


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """`function.apply`, where torch.func works on the call too: a node of the innermost recording
    alone, since those around it see the operation (torch_op/)."""
    if not _are_functorch_transforms_active():
        return function.apply(*arguments)  # type: ignore[no-untyped-call]
    from torch._functorch import autograd_function as torch_func

    innermost: Any = super(torch.autograd.Function, function)
    with torch_func.enable_single_level_autograd_function():  # type: ignore[attr-defined]
        return innermost.apply(*arguments)


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
        saved = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        if is_watched() or is_wrapped(*grad_outputs, *saved):
            found = _through_operation(ctx.call, wanted, *grad_outputs, *saved)
        else:
            names = tuple(name for name, asked in zip("qkv", wanted, strict=True) if asked)
            compute = partial(gradients, (*ctx.call, names))
            found = once_differentiable(compute, *grad_outputs, *saved)
        return (*found, None, None, None, None)


def _through_operation(
    call: tuple[float | None, bool, bool], wanted: Sequence[bool], *tensors: torch.Tensor | None
) -> Gradients:
    """The gradients as the operation of PyTorch computes them, which what records, transforms or
    watches the backward pass sees."""
    d_o, d_lse, *_ = tensors
    if d_o is None and d_lse is None:
        return None, None, None
    found = torch.ops.flash_attention.bwd(*tensors, *call, wanted_bits(wanted))
    d_q, d_k, d_v = (x if asked else None for x, asked in zip(found, wanted, strict=True))
    return d_q, d_k, d_v


def once_differentiable(compute: Callable[..., Any], *tensors: torch.Tensor | None) -> Any:
    """`compute(*tensors)`, gradients; where they themselves are recorded (create_graph), as a node
    of the graph: what is refused is to differentiate it again, not to ask for a graph."""
    if not is_recorded(*tensors):
        return compute(*tensors)
    return _apply(_Gradients, compute, *tensors)


class _Gradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, compute: Callable[..., Any], *tensors: Any) -> Any:
        return compute(*tensors)

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


def gradients(
    options: tuple[float | None, bool, bool, tuple[str, ...]],
    d_o: torch.Tensor | None,
    d_lse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
) -> Gradients:
    """d_q, d_k and d_v, None for those that `options` (softmax_scale, causal, deterministic, names)
    does not name; PyTorch does not record this."""
    softmax_scale, causal, deterministic, wanted = options
    if d_o is None and d_lse is None:
        return None, None, None
    if q.numel() == 0:
        d_q, d_k, d_v = (
            writable_like(x).zero_() if name in wanted else None
            for name, x in (("q", q), ("k", k), ("v", v))
        )
        return d_q, d_k, d_v
    positive, softmax_scale = with_positive_scale(q, softmax_scale)
    batch, seqlen_q, n_heads, d_head = q.shape
    problem = AttentionProblem(
        DType.from_torch_dtype(q.dtype), batch, seqlen_q, k.shape[1], n_heads, k.shape[2], d_head,
        causal=causal, gradients=True, deterministic=deterministic,
    )  # fmt: skip
    config = _chosen(problem, q.device)
    d_o = torch.zeros_like(o) if d_o is None else d_o
    inputs = {"q": positive, "k": k, "v": v, "o": o, "d_o": d_o}
    inputs = {name: readable(x) for name, x in inputs.items()} | {"lse": lse.contiguous()}
    if d_lse is not None:
        inputs["d_lse"] = d_lse.contiguous()
    d_q, d_k, d_v = gradients_of(config, inputs, softmax_scale, causal, wanted)
    return (d_q if positive is q or d_q is None else d_q.neg_()), d_k, d_v
