"""softmax and log_softmax over any dimension."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ..checked import check_dim, check_like, check_tensor, check_word
from ..launching import (
    differentiable,
    goes_through_torch,
    is_one_operator,
    operator,
    run,
)
from ..remembered import remembered
from ..rows.alone_op import AloneConfig, AloneOp
from ..rows.choice import run_rows
from ..rows.cluster_op import SEVERAL_ROWS, ClusterConfig, ClusterOp
from ..rows.op import RowCall, RowConfig, RowOp, as_rows, item_of, row_call, warps_for
from ..rows.parts_op import PartsConfig, PartsOp

Config = RowConfig | PartsConfig | AloneConfig | ClusterConfig
ALGORITHMS = ("online", "two_pass")
FORWARD = RowOp(
    "row_softmax.kernels", "forward", (1,), looped=RowConfig(1, 8192, False, 32),
    warps=partial(warps_for, of_thread=32), programs=256,
)  # fmt: skip
PARTS = PartsOp("row_softmax.parts", FORWARD, 8192)


def _alone(call: RowCall) -> AloneConfig | None:
    """Rows that fill the registers well enough."""
    if item_of(call) == 2:
        return AloneConfig(16384, 8, 3) if 12288 <= call.columns <= 16384 else None
    return AloneConfig() if 9216 <= call.columns <= 16384 else None


ALONE = AloneOp("row_softmax.alone", FORWARD, _alone)


def _cluster(call: RowCall) -> ClusterConfig | None:
    """Rows that do not go several to a program; pairs of them, where there are many of 16 bits."""
    columns, half = call.columns, item_of(call) == 2
    if not 8192 < columns <= 16 * 16384:
        return None
    if columns <= 32768:
        pairs = ClusterConfig(4096, 4, 80, ROWS=2, PIECES=4)
        several = half and call.rows >= 2 * SEVERAL_ROWS
        return pairs if several else ClusterConfig(4096, 4, 48)
    if columns <= 16 * 8192:
        return ClusterConfig(PIECES=8, TOGETHER=True) if half else ClusterConfig()
    if half and columns % 16384:
        return ClusterConfig(16384, 4, 160, PIECES=8, TOGETHER=True)
    return ClusterConfig(16384, 8, PIECES=4 if half else 1)


CLUSTER = ClusterOp("row_softmax.cluster", FORWARD, _cluster)
BACKWARD = RowOp("row_softmax.kernels", "backward", (2,), moves=3, most_whole=16384)


@remembered
def softmax(
    x: torch.Tensor,
    dim: int = -1,
    *,
    algorithm: str = "online",
    config: Config | None = None,
) -> torch.Tensor:
    """exp(x) over its sum along `dim`, in fp32, rounded once.

    x is fp16, bf16 or fp32, on a CUDA device or on the CPU, where the emulator runs the kernel; any
    shape, and any length of a row. Rows of more than 8,192 are shared by several programs, which
    read them once, on Hopper by those of a cluster up to 262,144; on other GPUs many rows of 12,288
    (fp32: 9,216) to 16,384 stay in the registers of one each. Those that cannot be taken so
    (`algorithm` "two_pass", torch.compile, rows that begin at no multiple of 16 bytes) stay in
    registers up to 32768; longer ones are read once more than that, maximum and sum found together
    ("online"), or twice. A dimension whose elements are not neighbours is copied first. A row of
    -inf alone gives NaN, as in PyTorch. `config`: a PartsConfig takes the kernel whose programs
    share rows, a ClusterConfig the one that has a row a cluster, an AloneConfig the one that has a
    row a program. Gradients flow to x. Raises TypeError or ValueError, naming the argument, before
    the launch; TritonVersionError for a missing or other triton.
    """
    return _checked(x, dim, False, algorithm, config)


@remembered
def log_softmax(
    x: torch.Tensor,
    dim: int = -1,
    *,
    algorithm: str = "online",
    config: Config | None = None,
) -> torch.Tensor:
    """The logarithm of `softmax`, without the detour through numbers that vanish."""
    return _checked(x, dim, True, algorithm, config)


def _checked(
    x: torch.Tensor, dim: int, log: bool, algorithm: str, config: Config | None
) -> torch.Tensor:
    check_tensor("x", x)
    check_word("algorithm", algorithm, ALGORITHMS)
    dim = check_dim("dim", dim, x)
    if is_one_operator({"x": x}, config=config):
        return _softmax(x, dim, log, algorithm)  # type: ignore[no-any-return]
    return _forward(x, dim, log, algorithm, config)


@remembered
def _forward(
    x: torch.Tensor, dim: int, log: bool, algorithm: str, config: Config | None
) -> torch.Tensor:
    if x.numel() == 0:
        return torch.empty_like(x)
    matrix = as_rows(x.movedim(dim, -1))
    out = torch.empty(matrix.shape, dtype=x.dtype, device=x.device)
    tensors = (matrix, out)
    rows, columns = matrix.shape
    online = algorithm == "online"
    call = row_call(rows, columns, tensors, tensors, LOG=log, ONLINE=online)
    kernels = (CLUSTER, ALONE, PARTS) if online or config is not None else ()
    run_rows(kernels, FORWARD, call, tensors, config)
    return out.view(x.movedim(dim, -1).shape).movedim(-1, dim)


@remembered
def _backward(y: torch.Tensor, grad: torch.Tensor, dim: int, log: bool) -> torch.Tensor:
    if y.numel() == 0:
        return torch.empty_like(y)
    matrix, gradients = as_rows(y.movedim(dim, -1)), as_rows(grad.movedim(dim, -1))
    out = torch.empty(matrix.shape, dtype=y.dtype, device=y.device)
    tensors = (matrix, gradients, out)
    rows, columns = matrix.shape
    run(BACKWARD, row_call(rows, columns, tensors, tensors, LOG=log), tensors)
    return out.view(y.movedim(dim, -1).shape).movedim(-1, dim)


# --- as PyTorch's operators ---------------------------------------------------------------------


@operator("softmax")
def _softmax_op(x: torch.Tensor, dim: int, log: bool, algorithm: str) -> torch.Tensor:
    check_tensor("x", x)
    return _forward(x, dim, log, algorithm, None)


@operator("softmax_grad")
def _softmax_grad_op(y: torch.Tensor, grad: torch.Tensor, dim: int, log: bool) -> torch.Tensor:
    check_like("grad", grad, "y", y)
    return _backward(y, grad, dim, log)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, ctx.dim, ctx.log, _ = inputs
    ctx.save_for_backward(output)


def _gradient(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
    (y,) = ctx.saved_tensors
    return _softmax_grad(y, grad, ctx.dim, ctx.log), None, None, None


@remembered
def _softmax_grad(y: torch.Tensor, grad: torch.Tensor, dim: int, log: bool) -> torch.Tensor:
    through = goes_through_torch(y, grad)
    softmax_grad: Any = torch.ops.flash_attention.softmax_grad if through else _backward
    return softmax_grad(y, grad, dim, log)  # type: ignore[no-any-return]


_softmax = differentiable(_softmax_op, partial(_forward, config=None), _keep, _gradient)
