"""`flash_attn_func` where PyTorch records gradients: what the forward pass keeps, and the backward
pass.

Kept are q, k, v, the output and the log-sum-exp; the scores are computed again.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import compress
from typing import Any

import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.problem import MAX_HEAD_DIMENSION, AttentionProblem

from .checks.eager import is_watched, is_wrapped
from .checks.readable import filled_up, readable, writable_like
from .checks.scale import scale_or_default, with_positive_scale
from .gradients import Gradients, Inputs, gradients_of, launch_again
from .heads import gradient_kernels
from .library import load_library
from .plain_gradients import chosen, is_dense, plain_gradients
from .recording import apply, once_differentiable
from .serving.gradients import Rule, Saved
from .serving.gradients import gradients as served_gradients
from .serving.options import make_options
from .torch_op import flops, sharding
from .torch_op.definition import wanted_bits

# softmax_scale, causal, deterministic, whose gradients
Options = tuple[float | None, bool, bool, tuple[str, ...]]
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
    found = apply(_Attention, q, k, v, (forward, options, with_lse))
    o, lse = found if with_lse else (found, None)
    return o, lse


@cache
def _require_kernels(
    dtype: torch.dtype, d_head: int, device: torch.device, deterministic: bool
) -> None:
    """Asked before the forward pass, and not only when gradients are: hours may lie between. What
    attention is refused for anyway is left to its checks."""
    there = device.type == "cpu" or torch.cuda.is_available()  # also of tensors without data
    if not there or dtype not in (torch.float16, torch.bfloat16) or d_head > MAX_HEAD_DIMENSION:
        return
    problem = AttentionProblem(
        DType.from_torch_dtype(dtype), 1, 1, 1, 1, 1, d_head,
        gradients=True, deterministic=deterministic,
    )  # fmt: skip
    gradient_kernels(problem, device)


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


def gradients(
    options: Options,
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
    if is_dense(config, q.shape[3]) and v.shape[3] == q.shape[3]:
        d_q, d_k, d_v = _dense(config, inputs, (softmax_scale, causal, deterministic, wanted))
    else:
        scale = scale_or_default(softmax_scale, q.shape[3])
        compute = _served if config.SERVES else _filled_up
        found = compute(config, inputs, (scale, causal, deterministic, wanted))
        d_q, d_k, d_v = map(_cut, found, inputs[:3])
    return (d_q if positive is q or d_q is None else d_q.neg_()), d_k, d_v


def _dense(config: KernelConfig, inputs: Inputs, options: Options) -> Gradients:
    softmax_scale, causal, _, wanted = options
    found = launch_again(config, inputs, softmax_scale, causal, wanted)
    if found is not None:
        return found
    q, k, v, o, d_o = map(readable, inputs[:5])
    d_lse = None if inputs.d_lse is None else inputs.d_lse.contiguous()
    whole = Inputs(q, k, v, o, d_o, inputs.lse.contiguous(), d_lse)
    return gradients_of(config, whole, softmax_scale, causal, wanted)


def _filled_up(config: KernelConfig, inputs: Inputs, options: Options) -> Gradients:
    """By dense kernels of wider heads."""
    q, k, v, o, d_o = (filled_up(x, config.d_head) for x in inputs[:5])
    return _dense(config, Inputs(q, k, v, o, d_o, inputs.lse, inputs.d_lse), options)


def _served(config: KernelConfig, inputs: Inputs, options: Options) -> Gradients:
    """By kernels that serve."""
    softmax_scale, causal, deterministic, wanted = options
    q, k, v, o, d_o, lse, d_lse = inputs
    whole = make_options(q.shape[3], softmax_scale, causal, (None, None), 0.0, 0)
    asked = ("q" in wanted, "k" in wanted, "v" in wanted, False)
    saved = Saved(q, k, v, o, lse, None)
    d_q, d_k, d_v, _ = served_gradients(saved, d_o, d_lse, Rule(whole, {}, deterministic), asked)
    return d_q, d_k, d_v


def _cut(gradient: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    """Without what was filled up, and in the order of dimensions that other gradients have."""
    if gradient is None:
        return None
    return writable_like(x).copy_(gradient[..., : x.shape[3]])
