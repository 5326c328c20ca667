"""cross_entropy of logits and the numbers of the right classes."""

from __future__ import annotations

import math
from dataclasses import replace
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
from ..launching import (
    differentiable,
    goes_through_torch,
    is_one_operator,
    is_recorded,
    operator,
    run,
)
from ..remembered import remembered
from ..rows.op import LOOPED, RowConfig, RowOp, as_rows, row_call
from .op import LossOp

REDUCTIONS = ("mean", "sum", "none")
_LONG = RowConfig(1, 8192, False, 8)
FORWARD = LossOp(
    "losses.kernels", "forward", (2, 3), moves=1, looped=_LONG, together=2048, programs=528
)
SHARED = replace(FORWARD, write=(2, 3, 6), zeroed=(6,))  # rows that several programs share
REDUCED = replace(FORWARD, write=(2, 3, 4, 5, 6), zeroed=(6,), together=4096)
BACKWARD = RowOp("losses.kernels", "backward", (5,), most_whole=LOOPED.BLOCK)
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@remembered
def cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, *, ignore_index: int = -100,
    reduction: str = "mean", label_smoothing: float = 0.0, z_loss: float = 0.0,
    inplace_backward: bool | None = None, config: RowConfig | None = None,
) -> torch.Tensor:  # fmt: skip
    """The cross entropy of each row of logits, in fp32: log-sum-exp less the target's logit.

    Args:
        logits: (…, classes), fp16, bf16 or fp32, on a CUDA device or on the CPU (the emulator).
        target: (…), int64: the class of each row. One equal to `ignore_index` adds nothing; any
            other that is not a class gives NaN.
        reduction: "mean" over the rows that are not ignored, "sum", or "none" (shaped like target).
        label_smoothing: 0 to 1; that share of the weight goes to all classes alike.
        z_loss: this times the square of the log-sum-exp is added to each row's loss.
        inplace_backward: True: the gradient is written over the logits, which then hold it, and
            nothing else may use them after the backward pass. False: it has memory of its own, as
            much again. None: it is written over them where nobody can see that, which is where
            nothing but the graph of this call holds their memory, the graph is not retained, and
            create_graph is off.

    Raises TypeError or ValueError, naming the argument, before the launch; TritonVersionError for a
    missing or other triton.
    """
    _check(logits, target)
    check_integer("ignore_index", ignore_index)
    check_word("reduction", reduction, REDUCTIONS)
    if not 0.0 <= check_number("label_smoothing", label_smoothing) <= 1.0:
        raise ValueError(f"label_smoothing is {label_smoothing}: allowed are 0 to 1")
    check_number("z_loss", z_loss)
    if inplace_backward is not None:
        check_switch("inplace_backward", inplace_backward)
    numbers = ignore_index, float(label_smoothing), float(z_loss), reduction
    if not is_one_operator({"logits": logits}, config=config):
        return _forward(logits, target, *numbers, config)[0]
    losses = _cross_entropy(logits, target, *numbers, inplace_backward)
    return losses[0]  # type: ignore[no-any-return]


def _check(logits: torch.Tensor, target: torch.Tensor) -> None:
    check_tensor("logits", logits)
    check_like("target", target, "logits", logits, (torch.int64,))
    if logits.dim() == 0 or logits.shape[-1] == 0:
        raise ValueError(f"logits has shape {tuple(logits.shape)}: there must be classes")
    check_shape("target", target, tuple(logits.shape[:-1]), "that of logits without the classes")


@remembered
def _forward(
    logits: torch.Tensor, target: torch.Tensor, ignored: int, smoothing: float, z_scale: float,
    reduction: str, config: RowConfig | None,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """(loss, log-sum-exp of each row, what the sum of the losses was divided by, if at all), in
    fp32."""
    lse = torch.empty(target.shape, dtype=torch.float32, device=logits.device)
    losses = torch.empty_like(lse)
    targets = target.contiguous()
    whole = reduction != "none"
    loss = divisor = lse
    if whole:
        loss, divisor = lse.new_empty(()), lse.new_empty(())
    if losses.numel():
        matrix = as_rows(logits)
        rows, columns = matrix.shape
        words = targets.view(-1)  # of the words' type
        tensors = (matrix, targets, losses, lse, loss, divisor, words)
        call = row_call(
            rows, columns, tensors, (matrix,), numbers=(smoothing, z_scale), integers=(ignored,),
            SMOOTH=smoothing != 0, REDUCE=whole, MEAN=reduction == "mean",
        )  # fmt: skip
        op = REDUCED if whole else FORWARD
        config = op.checked(config, call)
        if whole or op.parts(config, call) > 1:
            words = torch.zeros(op.words(config, call), dtype=torch.int64, device=logits.device)
            op = op if whole else SHARED
        run(op, call, (*tensors[:-1], words), config)
    elif whole:
        loss.fill_(math.nan if reduction == "mean" else 0.0)
    return (loss, lse, divisor) if whole else (losses, lse)


@remembered
def cross_entropy_backward(
    logits: torch.Tensor, target: torch.Tensor, lse: torch.Tensor, divisor: torch.Tensor,
    grad: torch.Tensor, ignored: int, smoothing: float, z_scale: float, inplace: bool,
) -> torch.Tensor:  # fmt: skip
    """The gradient of the logits, which is written over them if asked for."""
    matrix = as_rows(logits)
    out = matrix if inplace else torch.empty_like(matrix, memory_format=torch.contiguous_format)
    if lse.numel():
        rows, columns = matrix.shape
        whole = all(stride == 0 for stride in grad.stride())  # of a sum: the same for every row
        divide = divisor.numel() > 0
        tensors = (
            matrix, target.contiguous(), lse, grad if whole else grad.contiguous(),
            divisor if divide else lse, out,
        )  # fmt: skip
        config = BACKWARD.config_for(rows, columns)
        call = row_call(
            rows, columns, tensors, (matrix, out), numbers=(smoothing, z_scale),
            integers=(0 if whole else 1, ignored),
            programs=-(-rows // config.ROWS) * -(-columns // config.BLOCK), DIVIDE=divide,
        )  # fmt: skip
        run(BACKWARD, call, tensors, config)
    if not inplace:
        return out.view(logits.shape)
    # It could not be written where the logits lie if their rows had to be copied.
    written = not is_recorded(logits) and matrix.data_ptr() == logits.data_ptr()
    return logits if written else logits.copy_(out.view_as(logits))


# --- as PyTorch's operators ---------------------------------------------------------------------


@operator("cross_entropy")
def _cross_entropy_op(
    logits: torch.Tensor, target: torch.Tensor, ignored: int, smoothing: float, z_scale: float,
    reduction: str, inplace: bool | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    _check(logits, target)
    return _three(logits, target, ignored, smoothing, z_scale, reduction, inplace)


def _three(
    logits: torch.Tensor, target: torch.Tensor, ignored: int, smoothing: float, z_scale: float,
    reduction: str, inplace: bool | None,
) -> Three:  # fmt: skip
    """What `_forward` returns; where nothing was divided, an empty divisor."""
    loss, lse, *divisor = _forward(logits, target, ignored, smoothing, z_scale, reduction, None)
    return loss, lse, divisor[0] if divisor else lse.new_empty(0)


@operator("cross_entropy_grad")
def _gradient_op(
    logits: torch.Tensor, target: torch.Tensor, lse: torch.Tensor, divisor: torch.Tensor,
    grad: torch.Tensor, ignored: int, smoothing: float, z_scale: float,
) -> torch.Tensor:  # fmt: skip
    return cross_entropy_backward(
        logits, target, lse, divisor, grad, ignored, smoothing, z_scale, False
    )


@operator("cross_entropy_grad_", mutates=("logits",))
def _gradient_in_place_op(
    logits: torch.Tensor, target: torch.Tensor, lse: torch.Tensor, divisor: torch.Tensor,
    grad: torch.Tensor, ignored: int, smoothing: float, z_scale: float,
) -> None:  # fmt: skip
    cross_entropy_backward(logits, target, lse, divisor, grad, ignored, smoothing, z_scale, True)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Three) -> None:
    logits, target, *ctx.numbers, _, ctx.inplace = inputs
    if ctx.inplace is None:
        logits = logits.detach()  # a tensor that is only here, for `_unseen`
    ctx.save_for_backward(logits, target, *output[1:])
    # Not so the log-sum-exp: through it a gradient that is differentiated depends on the logits.
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)


def _unseen(logits: torch.Tensor) -> bool:
    """Whether nobody would see it if these logits, which a graph kept, were written over: what
    holds their memory is this tensor and `memory`, and the graph is let go. A gradient with
    create_graph is a part of a graph that may read them again."""
    keeps = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    if torch.is_grad_enabled() or keeps is None or keeps() or not logits.is_contiguous():
        return False
    if is_recorded(logits):  # who holds the memory that comes later is not known now
        return False
    memory = logits.untyped_storage()
    return torch._C._storage_Use_Count(memory._cdata) == 2


def _gradient(
    ctx: Any, grad: torch.Tensor | None, of_lse: torch.Tensor | None, _: Any
) -> tuple[Any, ...]:
    if of_lse is not None:
        raise NotImplementedError(
            "the log-sum-exp of flash_attention::cross_entropy has no gradient"
        )
    if grad is None:
        return (None,) * 7
    logits, target, lse, divisor = ctx.saved_tensors
    inplace = _unseen(logits) if ctx.inplace is None else ctx.inplace
    version = logits._version if inplace else 0
    place = logits.detach() if inplace else logits
    given: Any = (place, target, lse, divisor, grad, *ctx.numbers, inplace)
    result = _logits_grad(*given)
    if inplace and logits._version == version and not is_recorded(logits):
        torch.autograd.graph.increment_version(logits)  # a second pass must not read it
    return result, None, None, None, None, None, None


@remembered
def _logits_grad(
    logits: torch.Tensor, target: torch.Tensor, lse: torch.Tensor, divisor: torch.Tensor,
    grad: torch.Tensor, ignored: int, smoothing: float, z_scale: float, inplace: bool,
) -> torch.Tensor:  # fmt: skip
    """cross_entropy_backward, as PyTorch's operator where PyTorch must see it."""
    given = (logits, target, lse, divisor, grad, ignored, smoothing, z_scale)
    if not goes_through_torch(logits, lse, grad):
        return cross_entropy_backward(*given, inplace)
    ops: Any = torch.ops.flash_attention
    if not inplace:
        return ops.cross_entropy_grad(*given)  # type: ignore[no-any-return]
    ops.cross_entropy_grad_(*given)
    return logits


_cross_entropy = differentiable(_cross_entropy_op, _three, _keep, _gradient)
