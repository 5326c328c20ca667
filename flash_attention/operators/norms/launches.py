"""The launches of the norms' kernels; all arguments are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ..launching import processors, run
from ..remembered import remembered
from ..rows.op import RowConfig, RowOp, as_rows, row_call, warps_for
from ..rows.sums import column_sums

_FEW_WARPS = partial(warps_for, most=8)
FORWARD = RowOp(
    "norms.kernels", "forward", (4, 5, 6, 7), looped=RowConfig(1, 16384, False, 32),
    warps=_FEW_WARPS,
)  # fmt: skip
# RMSNorm's loop divides nothing, and is faster than a row in registers sooner.
FORWARD_RMS = replace(FORWARD, looped=RowConfig(1, 8192, False, 32), most_whole=16384)


def _backward_warps(numbers: int) -> int:
    return min(16 if numbers > 4096 else 8, max(1, numbers // 256))


# A row, its gradient and the sums of its length have to stay in registers: LayerNorm has two of
# them, RMSNorm only one, and so goes for rows of twice the length.
ROWS_WHOLE = RowOp(
    "norms.gradients", "rows_whole", (6, 7, 8), moves=3, most_whole=8192, warps=_backward_warps
)
ROWS_LOOPED = RowOp("norms.gradients", "rows_looped", (6,), moves=3, most_whole=0)
COLUMNS = RowOp("norms.gradients", "columns_of", (4, 5), moves=2)
_COLUMNS = RowConfig(ROWS=4, BLOCK=1024, WHOLE=False, num_warps=4)

Optional = torch.Tensor | None
Four = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@remembered
def forward(
    x: torch.Tensor, weight: Optional, bias: Optional, residual: Optional, eps: float, layer: bool,
    config: RowConfig | None,
) -> Four:  # fmt: skip
    """(output, sum with the residual or an empty tensor, mean, 1 / deviation)."""
    matrix = as_rows(x)
    rows, columns = matrix.shape
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    total = torch.empty_like(out) if residual is not None else x.new_empty(0)
    mean = torch.empty(rows, dtype=torch.float32, device=x.device)
    rstd = torch.empty_like(mean)
    if rows:
        other = matrix if residual is None else as_rows(residual)
        tensors = (
            matrix, other, _dense(weight, mean), _dense(bias, mean), out,
            out if residual is None else total, mean, rstd,
        )  # fmt: skip
        call = row_call(
            rows, columns, tensors, (matrix, other, out), numbers=(eps,), LAYER=layer,
            RESIDUAL=residual is not None, WEIGHT=weight is not None, BIAS=bias is not None,
        )  # fmt: skip
        run(FORWARD if layer else FORWARD_RMS, call, tensors, config)
    return out.view(x.shape), total if residual is None else total.view(x.shape), mean, rstd


@remembered
def backward(
    grad: torch.Tensor, x: torch.Tensor, added: Optional, weight: Optional, mean: torch.Tensor,
    rstd: torch.Tensor, layer: bool, bias: bool,
) -> Three:  # fmt: skip
    """(gradient of x, of the weight, of the bias), the latter two in fp32, empty where there is
    none."""
    matrix, gradients = as_rows(x), as_rows(grad)
    rows, columns = matrix.shape
    dx = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    wanted = [weight is not None, bias]
    if not rows:
        return dx.view(x.shape), *_sums_of_none(wanted, columns, mean)
    past = matrix if added is None else as_rows(added)
    op, config = of_rows(rows, columns, layer)
    whole = config.WHOLE
    parts = _programs(rows, config, x.device) if whole else _shares(columns)
    partials = _partials(wanted, parts, columns, mean)
    tensors = (gradients, matrix, past, _dense(weight, mean), mean, rstd, dx, *partials)
    call = row_call(
        rows, columns, tensors, (gradients, matrix, past, dx), programs=parts if whole else 0,
        LAYER=layer, ADDED=added is not None, WEIGHT=wanted[0], BIAS=wanted[1],
    )  # fmt: skip
    run(op, call, tensors, config)
    if not whole and any(wanted):
        _columns(gradients, matrix, mean, rstd, partials, wanted, layer)
    dw, db = (
        column_sums(partial) if want else partial.new_empty(0)
        for partial, want in zip(partials, wanted, strict=True)
    )
    return dx.view(x.shape), dw, db


def of_rows(rows: int, columns: int, layer: bool) -> tuple[RowOp, RowConfig]:
    """What computes the gradient of the rows. A loop's programs are two a multiprocessor, while the
    cache has room for so many rows."""
    op = ROWS_WHOLE if layer else replace(ROWS_WHOLE, most_whole=2 * ROWS_WHOLE.most_whole)
    config = op.config_for(rows, columns)
    if config.WHOLE:
        return op, config
    return ROWS_LOOPED, RowConfig(1, 8192, False, 16 if columns <= 32768 else 32)


def _programs(rows: int, config: RowConfig, device: torch.device) -> int:
    """As many as the GPU runs at a time: each goes over its share of the rows."""
    at_a_time = max(1, min(8, 8192 // (config.ROWS * config.BLOCK))) * processors(device)
    return min(-(-rows // config.ROWS), at_a_time)


def _shares(columns: int) -> int:
    """Of the rows, for the weight's gradient: 512 programs, if 32 shares are enough for that."""
    return max(1, min(32, 512 // -(-columns // _COLUMNS.BLOCK)))


def _columns(
    grad: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor,
    partials: Sequence[torch.Tensor], wanted: Sequence[bool], layer: bool,
) -> None:  # fmt: skip
    """The partial sums of the weight's gradient, where the rows are too long for one program."""
    rows, columns = x.shape
    step, shares = _COLUMNS.ROWS, _shares(columns)
    share = -(-rows // (shares * step)) * step
    tensors = (grad, x, mean, rstd, *partials)
    call = row_call(
        rows, columns, tensors, (grad, x), integers=(share,),
        programs=shares * -(-columns // _COLUMNS.BLOCK), LAYER=layer, WEIGHT=wanted[0],
        BIAS=wanted[1],
    )  # fmt: skip
    run(COLUMNS, call, tensors, _COLUMNS)


def _partials(
    wanted: Sequence[bool], parts: int, columns: int, like: torch.Tensor
) -> list[torch.Tensor]:
    """Memory for what each program adds up; another tensor where nothing is written."""
    return [like.new_empty((parts, columns)) if want else like for want in wanted]


def _sums_of_none(
    wanted: Sequence[bool], columns: int, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    dw, db = (like.new_zeros(columns if want else 0) for want in wanted)
    return dw, db


def _dense(vector: Optional, other: torch.Tensor) -> Any:
    """Of a weight or bias; `other` is passed where there is none, and is not read."""
    return other if vector is None else vector.contiguous()
