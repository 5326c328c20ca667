"""What PyTorch records of a call: whether it does, and as which nodes of its graph."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._C import _are_functorch_transforms_active
from torch.autograd.function import FunctionCtx, _SingleLevelFunction


def is_recorded(*tensors: Any) -> bool:
    """Whether PyTorch would record a call with these inputs."""
    return torch.is_grad_enabled() and any(
        getattr(x, "requires_grad", False) is True for x in tensors
    )


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
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


def once_differentiable(compute: Callable[..., Any], *tensors: torch.Tensor | None) -> Any:
    """`compute(*tensors)`, gradients; where they themselves are recorded (create_graph), as a node
    of the graph: what is refused is to differentiate it again, not to ask for a graph."""
    if not is_recorded(*tensors):
        return compute(*tensors)
    return apply(_Gradients, compute, *tensors)


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
