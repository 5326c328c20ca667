"""The launches of the norms' kernels; all arguments are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ..launching import processors, run
from ..remembered import remembered
from ..rows.alone_op import AloneConfig, AloneOp
from ..rows.choice import run_rows
from ..rows.cluster_op import ClusterConfig, ClusterOp
from ..rows.op import RowCall, RowConfig, RowOp, as_rows, row_call, warps_for
from ..rows.parts_op import PartsConfig, PartsOp
from ..rows.sums import column_sums
from .best import alone, alone_rms, cluster, cluster_rms
from .gradient_op import GradientOp

_FEW_WARPS = partial(warps_for, most=8)
FORWARD = RowOp(
    "norms.kernels", "forward", (4, 5, 6, 7), looped=RowConfig(1, 16384, False, 32),
    warps=_FEW_WARPS, together=4096, together_warps=4, pairs=4096, programs=528,
)  # fmt: skip
# RMSNorm's loop divides nothing, and is faster than a row in registers sooner.
FORWARD_RMS = replace(
    FORWARD, looped=RowConfig(1, 8192, False, 32), most_whole=16384, pairs=0,
    warps=partial(warps_for, most=8, of_thread=32),
)  # fmt: skip
PARTS = PartsOp("norms.parts", FORWARD, 8192)
PARTS_RMS = replace(PARTS, few=6)


ALONE = AloneOp("norms.alone", FORWARD, alone)
ALONE_RMS = replace(ALONE, best=alone_rms, steps=True)
CLUSTER = ClusterOp("norms.cluster", FORWARD, cluster)
CLUSTER_RMS = ClusterOp("norms.cluster", FORWARD_RMS, cluster_rms)
LAYER_NORM = (CLUSTER, ALONE, PARTS)
RMS_NORM = (CLUSTER_RMS, ALONE_RMS, PARTS_RMS)

ROWS_WHOLE = RowOp("norms.gradients", "rows_whole", (6, 7, 8), moves=3, most_whole=16384)
ROWS_LOOPED = RowOp("norms.gradients", "rows_looped", (6,), moves=3, most_whole=0)
IN_PARTS = GradientOp("norms.gradient_parts", replace(ROWS_WHOLE, function="backward"))
COLUMNS = RowOp("norms.gradients", "columns_of", (4, 5), moves=2)
_COLUMNS = RowConfig(ROWS=4, BLOCK=1024, WHOLE=False, num_warps=4)
# A row, its gradient and the weight's sums of its length fit into registers; of longer rows the
# bias' sums do not.
_BIAS_WHOLE = 8192

Optional = torch.Tensor | None
Config = RowConfig | PartsConfig | AloneConfig | ClusterConfig
Four = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@remembered
def forward(
    x: torch.Tensor, weight: Optional, bias: Optional, residual: Optional, eps: float, layer: bool,
    config: Config | None = None, statistics: bool = True,
) -> Four:  # fmt: skip
    """(output, sum with the residual or an empty tensor, mean, 1 / deviation); the latter two are
    the output where nobody wants the `statistics`."""
    matrix = as_rows(x)
    rows, columns = matrix.shape
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    total = torch.empty_like(out) if residual is not None else x.new_empty(0)
    mean = rstd = out
    if statistics:
        mean, rstd = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    if rows:
        other = matrix if residual is None else as_rows(residual)
        tensors = (
            matrix, other, _dense(weight, mean), _dense(bias, mean), out,
            out if residual is None else total, mean, rstd,
        )  # fmt: skip
        call = row_call(
            rows, columns, tensors, (matrix, other, out), numbers=(eps,), LAYER=layer,
            RESIDUAL=residual is not None, WEIGHT=weight is not None, BIAS=bias is not None,
            STATISTICS=statistics,
        )  # fmt: skip
        kernels, plain = (LAYER_NORM, FORWARD) if layer else (RMS_NORM, FORWARD_RMS)
        run_rows(kernels, plain, call, tensors, config)
    return out.view(x.shape), total if residual is None else total.view(x.shape), mean, rstd


@remembered
def backward(
    grad: torch.Tensor, x: torch.Tensor, added: Optional, weight: Optional, bias: Optional,
    mean: torch.Tensor, rstd: torch.Tensor, layer: bool,
) -> Three:  # fmt: skip
    """(gradient of x, of the weight, of the bias), the latter two empty where there is none."""
    matrix, gradients = as_rows(x), as_rows(grad)
    rows, columns = matrix.shape
    dx = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    vectors = (weight, bias)
    if not rows:
        return dx.view(x.shape), _zeros(weight, mean), _zeros(bias, mean)
    past = matrix if added is None else as_rows(added)
    if columns > (_BIAS_WHOLE if bias is not None else ROWS_WHOLE.most_whole):
        tensors = (gradients, matrix, past, _dense(weight, mean), mean, rstd, dx, mean, mean)
        call = row_call(
            rows, columns, tensors, (gradients, matrix, past, dx), LAYER=layer,
            ADDED=added is not None, WEIGHT=weight is not None, BIAS=bias is not None,
        )  # fmt: skip
        if IN_PARTS.fits(call, matrix):
            return dx.view(x.shape), *_in_parts(call, tensors, vectors)
    op, config = of_rows(rows, columns, layer)
    parts = _programs(rows, config, x.device) if config.WHOLE else 0
    # Who reads the rows adds up what has room; for the rest they are read once more.
    at_once = config.WHOLE, config.WHOLE and bias_at_once(columns)
    partials = [
        mean if vector is None else mean.new_empty((parts if now else _shares(columns), columns))
        for vector, now in zip(vectors, at_once, strict=True)
    ]
    tensors = (gradients, matrix, past, _dense(weight, mean), mean, rstd, dx, *partials)
    call = row_call(
        rows, columns, tensors, (gradients, matrix, past, dx), programs=parts, LAYER=layer,
        ADDED=added is not None, WEIGHT=weight is not None, BIAS=bias is not None and at_once[1],
    )  # fmt: skip
    run(op, call, tensors, config)
    later = [vector is not None and not now for vector, now in zip(vectors, at_once, strict=True)]
    if any(later):
        _columns(gradients, matrix, mean, rstd, partials, later, layer)
    return dx.view(x.shape), *_sums(partials, vectors)


def _in_parts(
    call: RowCall, tensors: Sequence[torch.Tensor], vectors: Sequence[Optional]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of weight and bias; that of x is written."""
    device = tensors[0].device
    config = IN_PARTS.default(call)
    groups = IN_PARTS.groups(config, call, processors(device))
    mean = tensors[4]
    partials = [
        mean if vector is None else mean.new_empty((groups, call.columns)) for vector in vectors
    ]
    words = IN_PARTS.words(config, call, device)
    run(IN_PARTS, call, (*tensors[:7], *partials, words), config)
    return _sums(partials, vectors)


def of_rows(rows: int, columns: int, layer: bool) -> tuple[RowOp, RowConfig]:
    """What computes the gradient of the rows. A loop's programs are two a multiprocessor, while the
    cache has room for so many rows."""
    config = ROWS_WHOLE.config_for(rows, columns)
    if config.WHOLE:
        warps = max(1, min(16, config.ROWS * config.BLOCK // (512 if layer else 256)))
        return ROWS_WHOLE, replace(config, num_warps=warps)
    return ROWS_LOOPED, RowConfig(1, 8192, False, 16 if columns <= 32768 else 32)


def bias_at_once(columns: int) -> bool:
    """Whether the kernel that keeps rows in registers adds up the bias' gradient, too."""
    return columns <= _BIAS_WHOLE


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


def _sums(
    partials: Sequence[torch.Tensor], vectors: Sequence[Optional]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of weight and bias, in their types; empty where there is none."""
    given = [i for i, vector in enumerate(vectors) if vector is not None]
    sums = [partials[0].new_empty(0) for _ in vectors]
    if given:
        dtypes = [vector.dtype for vector in vectors if vector is not None]
        made = column_sums([partials[i] for i in given], dtypes)
        for i, its in zip(given, made, strict=True):
            sums[i] = its
    return sums[0], sums[1]


def _zeros(vector: Optional, like: torch.Tensor) -> torch.Tensor:
    return like.new_empty(0) if vector is None else torch.zeros_like(vector)


def _dense(vector: Optional, other: torch.Tensor) -> Any:
    """Of a weight or bias; `other` is passed where there is none, and is not read."""
    return other if vector is None else vector.contiguous()
