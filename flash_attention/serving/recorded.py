"""Serving calls that PyTorch records: packed sequences, and `flash_attn_func` with windows, soft
caps and sinks."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..recording import once_differentiable
from .gradients import Rule, Saved, gradients, require_kernels

# (q, k, v, sinks) -> (o, lse), with the sinks as they were given
Forward = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def attention(
    forward: Forward,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    rule: Rule,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(o, lse) as `forward` computes them, which can be differentiated, once. Raises ValueError, or
    KernelNotBuiltError, where no kernel could compute the gradients."""
    # What attention is refused for anyway is left to its checks.
    if q.dim() > 2 and q.numel() and q.dtype in (torch.float16, torch.bfloat16):
        require_kernels(q, rule, sinks=sinks is not None)
    found: tuple[torch.Tensor, torch.Tensor] = _Served.apply(q, k, v, sinks, (forward, rule))  # type: ignore[no-untyped-call]
    return found


class _Served(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        sinks: torch.Tensor | None,
        call: tuple[Forward, Rule],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        forward, ctx.rule = call
        o, lse = forward(q, k, v, sinks)
        ctx.save_for_backward(q, k, v, o, lse, sinks)
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    def backward(
        ctx: Any, d_o: torch.Tensor | None, d_lse: torch.Tensor | None = None
    ) -> tuple[Any, ...]:
        wanted = ctx.needs_input_grad[:4]
        if d_o is None and d_lse is None:
            return None, None, None, None, None
        compute = partial(_computed, ctx.rule, wanted)
        return (*once_differentiable(compute, d_o, d_lse, *ctx.saved_tensors), None)


def _computed(
    rule: Rule,
    wanted: tuple[bool, ...],
    d_o: torch.Tensor | None,
    d_lse: torch.Tensor | None,
    *saved: Any,
) -> tuple[torch.Tensor | None, ...]:
    return tuple(gradients(Saved(*saved), d_o, d_lse, rule, wanted))


def check_without(**given: object) -> None:
    """Raises ValueError for what a call that is recorded cannot have."""
    for name, x in given.items():
        if x is not None:
            raise ValueError(
                f"{name} is given, and an input requires a gradient: with a cache, or an output in "
                "place, there is none; call it under torch.no_grad()"
            )
