"""cross_entropy of logits and the numbers of the right classes."""

from __future__ import annotations

from typing import Any

import torch

from ...checks.kinds import check_switch
from ..checked import (
    check_integer,
    check_like,
    check_number,
    check_shape,
    check_tensor,
    check_word,
)
from ..launching import goes_through_torch, operator, run
from ..remembered import remembered
from ..rows.op import RowConfig, RowOp, as_rows, row_call

REDUCTIONS = ("mean", "sum", "none")
_BLOCK = 4096  # of columns: the kernels always loop
FORWARD = RowOp("losses.kernels", "forward", (2, 3), moves=1, most_whole=_BLOCK)
BACKWARD = RowOp("losses.kernels", "backward", (4,), moves=2, most_whole=_BLOCK)


def cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, *, ignore_index: int = -100,
    reduction: str = "mean", label_smoothing: float = 0.0, z_loss: float = 0.0,
    inplace_backward: bool = False, config: RowConfig | None = None,
) -> torch.Tensor:  # fmt: skip
    """The cross entropy of each row of logits, in fp32: log-sum-exp less the target's logit.

    Args:
        logits: (…, classes), fp16, bf16 or fp32, on a CUDA device or on the CPU (the emulator).
        target: (…), int64: the class of each row. One equal to `ignore_index` adds nothing; any
            other that is not a class gives NaN.
        reduction: "mean" over the rows that are not ignored, "sum", or "none" (shaped like target).
        label_smoothing: 0 to 1; that share of the weight goes to all classes alike.
        z_loss: this times the square of the log-sum-exp is added to each row's loss.
        inplace_backward: the gradient is written over the logits, which then hold it: half the
            memory, and nothing else may use the logits after the backward pass.

    Raises TypeError or ValueError, naming the argument, before the launch; TritonVersionError for a
    missing or other triton.
    """
    _check(logits, target)
    check_integer("ignore_index", ignore_index)
    check_word("reduction", reduction, REDUCTIONS)
    if not 0.0 <= check_number("label_smoothing", label_smoothing) <= 1.0:
        raise ValueError(f"label_smoothing is {label_smoothing}: allowed are 0 to 1")
    check_number("z_loss", z_loss)
    check_switch("inplace_backward", inplace_backward)
    if config is None and goes_through_torch(logits):
        loss, _ = torch.ops.flash_attention.cross_entropy(
            logits, target, ignore_index, float(label_smoothing), float(z_loss), inplace_backward
        )
    else:
        loss, _ = _forward(logits, target, ignore_index, label_smoothing, z_loss, config)
    return _reduced(loss, target, ignore_index, reduction)


def _reduced(
    loss: torch.Tensor, target: torch.Tensor, ignore_index: int, reduction: str
) -> torch.Tensor:
    if reduction == "none":
        return loss
    total = loss.sum()
    return total if reduction == "sum" else total / (target != ignore_index).sum()


def _check(logits: torch.Tensor, target: torch.Tensor) -> None:
    check_tensor("logits", logits)
    check_like("target", target, "logits", logits, (torch.int64,))
    if logits.dim() == 0 or logits.shape[-1] == 0:
        raise ValueError(f"logits has shape {tuple(logits.shape)}: there must be classes")
    check_shape("target", target, tuple(logits.shape[:-1]), "that of logits without the classes")


@remembered
def _forward(
    logits: torch.Tensor, target: torch.Tensor, ignored: int, smoothing: float, z_scale: float,
    config: RowConfig | None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """(loss, log-sum-exp), both fp32 and shaped like the target."""
    loss = torch.empty(target.shape, dtype=torch.float32, device=logits.device)
    lse = torch.empty_like(loss)
    if loss.numel():
        matrix = as_rows(logits)
        rows, columns = matrix.shape
        tensors = (matrix, target.contiguous(), loss, lse)
        call = row_call(
            rows, columns, tensors, (matrix,), numbers=(smoothing, z_scale), integers=(ignored,),
            SMOOTH=smoothing != 0,
        )  # fmt: skip
        run(FORWARD, call, tensors, config)
    return loss, lse


def _backward(
    logits: torch.Tensor, target: torch.Tensor, lse: torch.Tensor, grad: torch.Tensor,
    out: torch.Tensor, ignored: int, smoothing: float, z_scale: float,
) -> None:  # fmt: skip
    """Writes the gradient of the logits to `out`, a matrix, which may be the logits."""
    if not lse.numel():
        return
    matrix = as_rows(logits)
    rows, columns = matrix.shape
    whole = all(stride == 0 for stride in grad.stride())  # of a sum: the same for every row
    gradients = grad if whole else grad.contiguous()
    tensors = (matrix, target.contiguous(), lse, gradients, out)
    call = row_call(
        rows, columns, tensors, (matrix, out), numbers=(smoothing, z_scale),
        integers=(0 if whole else 1, ignored),
    )  # fmt: skip
    run(BACKWARD, call, tensors)


# --- as PyTorch's operators ---------------------------------------------------------------------


@operator("cross_entropy")
def _cross_entropy_op(
    logits: torch.Tensor, target: torch.Tensor, ignored: int, smoothing: float, z_scale: float,
    inplace: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    _check(logits, target)
    return _forward(logits, target, ignored, smoothing, z_scale, None)


@operator("cross_entropy_grad")
def _gradient_op(
    logits: torch.Tensor, target: torch.Tensor, lse: torch.Tensor, grad: torch.Tensor,
    ignored: int, smoothing: float, z_scale: float,
) -> torch.Tensor:  # fmt: skip
    out = torch.empty_like(logits, memory_format=torch.contiguous_format)
    _backward(logits, target, lse, grad, as_rows(out), ignored, smoothing, z_scale)
    return out


@operator("cross_entropy_grad_", mutates=("logits",))
def _gradient_in_place_op(
    logits: torch.Tensor, target: torch.Tensor, lse: torch.Tensor, grad: torch.Tensor,
    ignored: int, smoothing: float, z_scale: float,
) -> None:  # fmt: skip
    matrix = as_rows(logits)
    _backward(logits, target, lse, grad, matrix, ignored, smoothing, z_scale)
    if matrix.data_ptr() != logits.data_ptr():  # it could not be written as it lay
        logits.copy_(matrix.view(logits.shape))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    logits, target, *ctx.numbers, ctx.inplace = inputs
    ctx.save_for_backward(logits, target, output[1])
    ctx.mark_non_differentiable(output[1])


def _gradient(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[Any, ...]:
    logits, target, lse = ctx.saved_tensors
    ops = torch.ops.flash_attention
    if ctx.inplace:
        result = logits.detach()
        ops.cross_entropy_grad_(result, target, lse, grad, *ctx.numbers)
    else:
        result = ops.cross_entropy_grad(logits, target, lse, grad, *ctx.numbers)
    return result, None, None, None, None, None


_cross_entropy_op.register_autograd(_gradient, setup_context=_keep)
