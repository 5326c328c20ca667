"""layer_norm and rms_norm over the last dimension, with an optional residual."""

from __future__ import annotations

from typing import Any

import torch

from ..checked import DTYPES, check_like, check_number, check_shape, check_tensor
from ..launching import differentiable, goes_through_torch, is_one_operator, operator
from ..remembered import remembered
from . import launches
from .launches import Config

Optional = torch.Tensor | None


@remembered
def layer_norm(
    x: torch.Tensor, weight: Optional = None, bias: Optional = None, eps: float = 1e-5, *,
    residual: Optional = None, config: Config | None = None,
) -> Any:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) * weight + bias, along the last dimension, in fp32.

    x is fp16, bf16 or fp32, on a CUDA device or on the CPU (the emulator), of any shape and length.
    weight and bias have its last dimension, in any of these types. With `residual`, like x, the sum
    of both is normalised, and the result is (output, sum). Gradients flow to all tensors, in the
    same order at every call. Raises TypeError or ValueError, naming the argument, before the
    launch; TritonVersionError for a missing or other triton. `config`: a PartsConfig takes the
    kernel whose programs share rows, an AloneConfig the one that has a row a program, a
    ClusterConfig the one that has a row or several a cluster, all three without a residual.
    """
    return _checked(x, weight, bias, residual, eps, True, config)


@remembered
def rms_norm(
    x: torch.Tensor, weight: Optional = None, eps: float = 1e-6, *, residual: Optional = None,
    config: Config | None = None,
) -> Any:  # fmt: skip
    """x / sqrt(mean of squares + eps) * weight, along the last dimension. See `layer_norm`."""
    return _checked(x, weight, None, residual, eps, False, config)


def _checked(
    x: torch.Tensor, weight: Optional, bias: Optional, residual: Optional, eps: float, layer: bool,
    config: Config | None,
) -> Any:  # fmt: skip
    _check(x, weight, bias, residual, eps)
    tensors = {"x": x, "weight": weight, "bias": bias, "residual": residual}
    if is_one_operator(tensors, config=config):
        out, total, _, _ = _norm(x, weight, bias, residual, float(eps), layer)
    else:
        out, total, _, _ = launches.forward(x, weight, bias, residual, eps, layer, config, False)
    return out if residual is None else (out, total)


def _check(
    x: torch.Tensor, weight: Optional, bias: Optional, residual: Optional, eps: float
) -> None:
    check_tensor("x", x)
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"x has shape {tuple(x.shape)}: its last dimension must have elements")
    for name, given in (("weight", weight), ("bias", bias)):
        if given is not None:
            check_like(name, given, "x", x, DTYPES)
            check_shape(name, given, (x.shape[-1],), "the last dimension of x")
    if residual is not None:
        check_like("residual", residual, "x", x)
        check_shape("residual", residual, tuple(x.shape), "that of x")
    if check_number("eps", eps) < 0 or eps != eps:
        raise ValueError(f"eps is {eps}: it must not be negative")


# --- as PyTorch's operators ---------------------------------------------------------------------


@operator("norm")
def _norm_op(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
    residual: torch.Tensor | None, eps: float, layer: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """(output, sum with the residual or nothing, mean, 1 / deviation)."""
    _check(x, weight, bias, residual, eps)
    return launches.forward(x, weight, bias, residual, eps, layer)


@operator("norm_grad")
def _norm_grad_op(
    grad: torch.Tensor, x: torch.Tensor, added: torch.Tensor | None, weight: torch.Tensor | None,
    bias: torch.Tensor | None, mean: torch.Tensor, rstd: torch.Tensor, layer: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """(gradient of x, of the weight or nothing, of the bias or nothing)."""
    return launches.backward(grad, x, added, weight, bias, mean, rstd, layer)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    x, weight, bias, residual, _, ctx.layer = inputs
    _, total, mean, rstd = output
    ctx.with_residual = residual is not None
    ctx.save_for_backward(total if residual is not None else x, weight, bias, mean, rstd)
    ctx.mark_non_differentiable(mean, rstd)
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad: Any, grad_total: Any, *_: Any) -> tuple[Any, ...]:
    x, weight, bias, mean, rstd = ctx.saved_tensors
    if grad is None:
        grad = torch.zeros_like(x)
    added = grad_total if ctx.with_residual else None
    dx, dw, db = _norm_grad(grad, x, added, weight, bias, mean, rstd, ctx.layer)
    return (
        dx,
        dw if weight is not None else None,
        db if bias is not None else None,
        dx if ctx.with_residual else None,
        None,
        None,
    )


@remembered
def _norm_grad(
    grad: torch.Tensor, x: torch.Tensor, added: Optional, weight: Optional, bias: Optional,
    mean: torch.Tensor, rstd: torch.Tensor, layer: bool,
) -> Any:  # fmt: skip
    through = goes_through_torch(grad, x, weight, bias)
    norm_grad: Any = torch.ops.flash_attention.norm_grad if through else launches.backward
    return norm_grad(grad, x, added, weight, bias, mean, rstd, layer)


_norm = differentiable(_norm_op, launches.forward, _keep, _gradient)
