"""torch.func.vmap: its dimension is folded into the batch, in one launch."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from .definition import LIBRARY, bwd, fwd


def _folded(op: Any, info: Any, in_dims: Sequence[int | None], *arguments: Any) -> Any:
    n = info.batch_size
    folded = [_fold(x, dim, n) for x, dim in zip(arguments, in_dims, strict=True)]
    found = op(*folded)
    outputs = tuple(x.unflatten(0, (n, x.shape[0] // n)) for x in found)
    return outputs, (0,) * len(outputs)


def _fold(x: Any, dim: int | None, n: int) -> Any:
    """What is no tensor stays as it is; a tensor that the transformation does not have is the same
    for all."""
    if not isinstance(x, torch.Tensor):
        return x
    x = x.expand(n, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.flatten(0, 1)


def register() -> None:
    register_vmap = getattr(torch.library, "register_vmap", None)  # of torch 2.5 and newer
    if register_vmap is not None:
        register_vmap(fwd, partial(_folded, fwd), lib=LIBRARY)
        register_vmap(bwd, partial(_folded, bwd), lib=LIBRARY)
