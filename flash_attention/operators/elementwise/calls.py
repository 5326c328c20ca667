"""Sums and activation functions of tensors of any shape and strides."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ..activations import NAMES
from ..checked import aligned, check_like, check_number, check_out, check_tensor, check_word
from ..launching import differentiable, goes_through_torch, is_one_operator, operator, run
from ..remembered import remembered
from .op import BlockConfig, Elementwise
from .problem import MOST_DIMENSIONS, elements

GELU_FORMS = ("none", "tanh")


@remembered
def add(
    x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None,
    config: BlockConfig | None = None,
) -> torch.Tensor:  # fmt: skip
    """x + y, rounded once; shapes are broadcast.

    x, y and out are fp16, bf16 or fp32, all of one type, on one CUDA device or on the CPU, where
    the emulator runs the kernel. Any strides; out may be x or y itself. Gradients flow to x and y
    (without out). Raises TypeError or ValueError, naming the argument, before the launch;
    TritonVersionError for a missing or other triton.
    """
    if is_one_operator({"x": x, "y": y}, out=out, config=config):
        return _differentiable_add(x, y)  # type: ignore[no-any-return]
    return _add(x, y, out, config)


@remembered
def add_scalar(
    x: torch.Tensor, alpha: float, *, out: torch.Tensor | None = None,
    config: BlockConfig | None = None,
) -> torch.Tensor:  # fmt: skip
    """x + alpha, computed in fp32 and rounded once. See `add`."""
    alpha = check_number("alpha", alpha)
    if is_one_operator({"x": x}, out=out, config=config):
        return _differentiable_add_scalar(x, alpha)  # type: ignore[no-any-return]
    return _unary("add_scalar", x, out, alpha, config)


@remembered
def relu(
    x: torch.Tensor, *, out: torch.Tensor | None = None, config: BlockConfig | None = None
) -> torch.Tensor:
    """max(x, 0); NaN stays NaN. See `add`."""
    return _activation(x, "relu", out, config)


@remembered
def silu(
    x: torch.Tensor, *, out: torch.Tensor | None = None, config: BlockConfig | None = None
) -> torch.Tensor:
    """x / (1 + exp(-x)). See `add`."""
    return _activation(x, "silu", out, config)


@remembered
def gelu(
    x: torch.Tensor, approximate: str = "none", *, out: torch.Tensor | None = None,
    config: BlockConfig | None = None,
) -> torch.Tensor:  # fmt: skip
    """x times the normal distribution function of x, exact to the type ("none"), or by the tanh
    formula ("tanh"). See `add`."""
    check_word("approximate", approximate, GELU_FORMS)
    return _activation(x, "gelu_erf" if approximate == "none" else "gelu_tanh", out, config)


@remembered
def activation_grad(x: torch.Tensor, grad: torch.Tensor, kind: str) -> torch.Tensor:
    """The gradient of x, where that of the activation of that name (activations.NAMES) is `grad`:
    one operator, as PyTorch sees it."""
    through = goes_through_torch(x, grad)
    grad_op: Any = torch.ops.flash_attention.activation_grad if through else _activation_grad
    return grad_op(x, grad, kind)  # type: ignore[no-any-return]


def _activation(
    x: torch.Tensor, kind: str, out: torch.Tensor | None, config: BlockConfig | None
) -> torch.Tensor:
    if is_one_operator({"x": x}, out=out, config=config):
        return _differentiable_activation(x, kind)  # type: ignore[no-any-return]
    return _unary(kind, x, out, 0.0, config)


@remembered
def _add(
    x: torch.Tensor, y: torch.Tensor, out: torch.Tensor | None, config: BlockConfig | None
) -> torch.Tensor:
    check_tensor("x", x)
    check_like("y", y, "x", x)
    try:
        shape = torch.broadcast_shapes(x.shape, y.shape)  # type: ignore[no-untyped-call]
    except RuntimeError:
        raise ValueError(
            f"y has shape {tuple(y.shape)}, which cannot be broadcast with that of x, "
            f"{tuple(x.shape)}"
        ) from None
    if out is not None:
        check_out(out, tuple(shape), x, {"x": x, "y": y})
    else:
        like = x if x.shape == shape else y
        out = (
            torch.empty_like(like) if like.shape == shape
            else torch.empty(shape, dtype=x.dtype, device=x.device)
        )  # fmt: skip
    return _run(Elementwise("add"), x.expand(shape), y.expand(shape), out, 0.0, config)


@remembered
def _unary(
    kind: str, x: torch.Tensor, out: torch.Tensor | None, alpha: float, config: BlockConfig | None
) -> torch.Tensor:
    check_tensor("x", x)
    if out is None:
        out = torch.empty_like(x)
    else:
        check_out(out, tuple(x.shape), x, {"x": x})
    return _run(Elementwise(kind), x, x, out, alpha, config)


@remembered
def _run(
    op: Elementwise, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor, alpha: float,
    config: BlockConfig | None,
) -> torch.Tensor:  # fmt: skip
    """The kernel's launch, for tensors of one shape; more dimensions than it takes are copied."""
    if out.numel() == 0:
        return out
    problem = elements((x, y, out), alpha, aligned(x, y, out))
    if len(problem.shape) <= MOST_DIMENSIONS:
        run(op, problem, (x, y, out), config)
        return out
    dense = torch.empty(out.shape, dtype=out.dtype, device=out.device)
    _run(op, x.contiguous(), y.contiguous(), dense, alpha, config)
    return out.copy_(dense)


# --- as PyTorch's operators ---------------------------------------------------------------------


@operator("add")
def _add_op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _add(x, y, None, None)


@operator("add_scalar")
def _add_scalar_op(x: torch.Tensor, alpha: float) -> torch.Tensor:
    return _unary("add_scalar", x, None, alpha, None)


@operator("activation")
def _activation_op(x: torch.Tensor, kind: str) -> torch.Tensor:
    check_word("kind", kind, NAMES)
    return _unary(kind, x, None, 0.0, None)


@operator("activation_grad")
def _activation_grad_op(x: torch.Tensor, grad: torch.Tensor, kind: str) -> torch.Tensor:
    check_word("kind", kind, NAMES)
    return _activation_grad(x, grad, kind)


@remembered
def _activation_grad(x: torch.Tensor, grad: torch.Tensor, kind: str) -> torch.Tensor:
    return _run(Elementwise(kind, True), x, grad, torch.empty_like(x), 0.0, None)


def _keep_shapes(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.shapes = inputs[0].shape, inputs[1].shape


def _add_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = ctx.shapes
    return grad.sum_to_size(x), grad.sum_to_size(y)


def _keep_input(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, ctx.kind = inputs
    ctx.save_for_backward(x)


def _activation_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    (x,) = ctx.saved_tensors
    return activation_grad(x, grad, ctx.kind), None


def _no_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Nothing is kept."""


_differentiable_add = differentiable(
    _add_op, partial(_add, out=None, config=None), _keep_shapes, _add_backward
)
_differentiable_add_scalar = differentiable(
    _add_scalar_op, lambda x, alpha: _unary("add_scalar", x, None, alpha, None), _no_context,
    lambda ctx, grad: (grad, None),
)  # fmt: skip
_differentiable_activation = differentiable(
    _activation_op, lambda x, kind: _unary(kind, x, None, 0.0, None), _keep_input,
    _activation_backward,
)  # fmt: skip
