"""Which of several kernels computes the rows of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..launching import run
from .alone_op import AloneOp
from .cluster_op import ClusterOp
from .op import RowCall, RowOp
from .parts_op import PartsOp, run_parts

Kernel = AloneOp | ClusterOp | PartsOp


def run_rows(
    kernels: Sequence[Kernel], plain: RowOp, call: RowCall, tensors: Sequence[torch.Tensor],
    config: Any,
) -> None:  # fmt: skip
    """By the kernel that `config` is for; without one by the first that is faster than what comes
    behind it, `plain` at last."""
    for op in kernels:
        of_it = isinstance(config, op.config_type)
        if of_it or (config is None and op.is_faster(call, tensors[0])):
            if isinstance(op, PartsOp):
                return run_parts(op, call, tensors, config)
            return run(op, call, tensors, config)
    return run(plain, call, tensors, config)
