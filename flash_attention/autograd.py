"""`flash_attn_func` where PyTorch records gradients: what the forward pass keeps, and the backward
pass.

Kept are q, k, v, the output and the log-sum-exp; the scores are computed again.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import compress
from typing import Any

import torch
from torch._C import _are_functorch_transforms_active
from torch.autograd.function import FunctionCtx, _SingleLevelFunction

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.problem import AttentionProblem

from . import dispatch
from .checks.eager import is_watched, is_wrapped
from .checks.readable import readable, writable_like
from .checks.scale import with_positive_scale
from .gradients import Gradients, Inputs, gradients_of, launch_again
from .library import load_library
from .plain_gradients import chosen, plain_gradients
from .torch_op import flops, sharding
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
    *,
    with_lse: bool = True,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(o, lse) as `forward` computes them, and recorded: both can be differentiated, once; without
    `with_lse` lse is None. Raises ValueError, or KernelNotBuiltError, where no kernel could compute
    the gradients."""
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    if q.dim() == 4 and q.numel():
        _require_kernels(q.dtype, int(q.shape[3]), q.device, deterministic)
    options = softmax_scale, causal, deterministic
    found = _apply(_Attention, q, k, v, (forward, options, with_lse))
    o, lse = found if with_lse else (found, None)
    return o, lse


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """`function.apply`, where torch.func works on the call too: a node of the innermost recording
    alone, since those around it see the operation (torch_op/)."""
    if not _are_functorch_transforms_active():
        return function.apply(*arguments)  # type: ignore[no-untyped-call]
    from torch._functorch import autograd_function as torch_func

    with torch_func.enable_single_level_autograd_function():  # type: ignore[attr-defined]
        return _of_one_level(function).apply(*arguments)


@cache
def _of_one_level(function: type[torch.autograd.Function]) -> Any:
    """The same function as torch.func has those that it makes itself. A `Function` refuses to be
    one: since torch 2.15 in `_FunctionBase.apply` already."""
    members = {name: staticmethod(getattr(function, name)) for name in ("forward", "backward")}
    return type(function.__name__, (_SingleLevelFunction,), members)


def is_recorded(*tensors: Any) -> bool:
    """Whether PyTorch would record a call with these inputs."""
    return torch.is_grad_enabled() and any(
        getattr(x, "requires_grad", False) is True for x in tensors
    )


@cache
def _require_kernels(
    dtype: torch.dtype, d_head: int, device: torch.device, deterministic: bool
) -> None:
    """Asked before the forward pass, and not only when gradients are: hours may lie between. What
    attention is refused for anyway is left to its checks."""
    there = device.type == "cpu" or torch.cuda.is_available()  # also of tensors without data
    if not there or dtype not in (torch.float16, torch.bfloat16):
        return
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
        call: tuple[Forward, tuple[float | None, bool, bool], bool],
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """An output that nobody sees, and every argument, costs the host microseconds."""
        forward, ctx.options, with_lse = call
        o, lse = forward(q, k, v, *ctx.options[:2])
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.set_materialize_grads(False)
        return (o, lse) if with_lse else o

    @staticmethod
    def backward(
        ctx: Any, d_o: torch.Tensor | None, d_lse: torch.Tensor | None = None
    ) -> tuple[Any, ...]:
        return _differentiated(ctx, d_o, d_lse, ctx.saved_tensors)


class _HeadsFirst(_Attention):
    """Of tensors (batch, heads, seq, d_head)."""

    @staticmethod
    def backward(
        ctx: Any, d_o: torch.Tensor | None, d_lse: torch.Tensor | None = None
    ) -> tuple[Any, ...]:
        return _differentiated_heads_first(ctx, d_o, d_lse, ctx.saved_tensors)


def _differentiated(
    ctx: Any,
    d_o: torch.Tensor | None,
    d_lse: torch.Tensor | None,
    saved: Sequence[torch.Tensor],
) -> tuple[Any, ...]:
    """What a backward pass returns."""
    wanted = ctx.needs_input_grad[:3]
    if is_watched() or is_wrapped(d_o, d_lse, *saved):
        found = _through_operation(ctx.options, wanted, d_o, d_lse, *saved)
    else:
        compute = partial(gradients, (*ctx.options, tuple(compress("qkv", wanted))))
        found = once_differentiable(compute, d_o, d_lse, *saved)
    return *found, None


def _differentiated_heads_first(
    ctx: Any,
    d_o: torch.Tensor | None,
    d_lse: torch.Tensor | None,
    saved: Sequence[torch.Tensor],
) -> tuple[Any, ...]:
    *qkvo, lse = saved
    d_o = None if d_o is None else d_o.transpose(1, 2)
    found = _differentiated(ctx, d_o, d_lse, [*(x.transpose(1, 2) for x in qkvo), lse])
    return tuple(None if x is None else x.transpose(1, 2) for x in found)


@cache
def recorder(heads_first: bool) -> Callable[..., Any]:
    """(q, k, v, (o, lse, options, with_lse)) -> o, or (o, lse), recorded, of a forward pass that is
    queued already, while no transformation is active. Both passes are the extension's, without a
    frame of Python; a backward pass that it does not know is as above. It reads what was saved
    once: checkpointing gives it out once."""
    function = _HeadsFirst if heads_first else _Attention
    otherwise = _differentiated_heads_first if heads_first else _differentiated
    passes = load_library().RecordedFunction(plain_gradients(heads_first), otherwise)

    class _Recorded(function):  # type: ignore[misc, valid-type]
        forward = staticmethod(passes.forward)

    _Recorded._backward_cls.apply = passes.apply
    return super(torch.autograd.Function, _Recorded).apply  # type: ignore[no-any-return, misc]


def _through_operation(
    call: tuple[float | None, bool, bool], wanted: Sequence[bool], *tensors: torch.Tensor | None
) -> Gradients:
    """The gradients as the operation of PyTorch computes them, which what records, transforms or
    watches the backward pass sees."""
    d_o, d_lse, *_ = tensors
    if d_o is None and d_lse is None:
        return None, None, None
    if not torch.compiler.is_compiling():
        sharding.register_if_used()
        flops.register_if_used()
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
    config = chosen(q.dtype, q.shape, k.shape, causal, deterministic, q.device)
    d_o = torch.zeros_like(o) if d_o is None else d_o
    inputs = Inputs(positive, k, v, o, d_o, lse, d_lse)
    found = launch_again(config, inputs, softmax_scale, causal, wanted)
    if found is None:
        found = gradients_of(config, _readable(inputs), softmax_scale, causal, wanted)
    d_q, d_k, d_v = found
    return (d_q if positive is q or d_q is None else d_q.neg_()), d_k, d_v


def _readable(inputs: Inputs) -> Inputs:
    q, k, v, o, d_o = map(readable, inputs[:5])
    d_lse = None if inputs.d_lse is None else inputs.d_lse.contiguous()
    return Inputs(q, k, v, o, d_o, inputs.lse.contiguous(), d_lse)
