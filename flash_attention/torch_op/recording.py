"""Gradients of the operations, and their casts under autocast."""

from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import _C
from torch.autograd import forward_ad

from .. import autograd
from ..autocast import cast
from ..checks.eager import check_no_tangent
from ..plain_calls import plain_call
from ..recording import is_recorded, once_differentiable
from . import sharding
from .definition import LIBRARY, bwd, fwd

# The tensors, which come first.
_OF_BWD = ("d_o", "d_lse", "q", "k", "v", "o", "lse")


def _recorded_fwd(
    keyset: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    deterministic: bool = False,
) -> Any:
    if q.is_cuda:
        launched = plain_call()(q, k, v, softmax_scale, causal, deterministic, True)
        if launched is not None:
            return launched[:2]
    _prepare({"q": q, "k": k, "v": v})
    below = partial(_below_autograd, fwd, keyset)
    if not is_recorded(q, k, v):
        return below(q, k, v, softmax_scale, causal, deterministic)
    return autograd.attention(below, q, k, v, softmax_scale, causal, deterministic)


def _recorded_bwd(keyset: Any, *arguments: Any) -> Any:
    tensors = dict(zip(_OF_BWD, arguments, strict=False))
    _prepare(tensors)
    below = partial(_below_autograd, bwd, keyset)
    if not is_recorded(*tensors.values()):
        return below(*arguments)
    return once_differentiable(below, *arguments)


def _below_autograd(op: Any, keyset: Any, *arguments: Any) -> Any:
    # What torch.func has around this recording records by itself.
    around = torch.enable_grad() if _C._are_functorch_transforms_active() else nullcontext()
    with around, _C._AutoDispatchBelowAutograd():
        return op.redispatch(keyset & _C._after_autograd_keyset, *arguments)


def _prepare(tensors: dict[str, torch.Tensor | None]) -> None:
    """Refuses what a derivative would be lost of, and sees to it that DTensor knows its rule."""
    sharding.register_if_used()
    if forward_ad._current_level >= 0:
        for name, tensor in tensors.items():
            if tensor is not None:
                check_no_tangent(name, tensor)


def _autocast_fwd(
    keyset: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *others: Any
) -> Any:
    key = _C.DispatchKey.AutocastCUDA if q.is_cuda else _C.DispatchKey.AutocastCPU
    tensors = cast(q, k, v)
    with _C._ExcludeDispatchKeyGuard(_C.DispatchKeySet(key)):
        return fwd(*tensors, *others)


def register() -> None:
    LIBRARY.impl("fwd", _recorded_fwd, "Autograd", with_keyset=True)
    LIBRARY.impl("bwd", _recorded_bwd, "Autograd", with_keyset=True)
    for key in ("AutocastCPU", "AutocastCUDA"):
        LIBRARY.impl("fwd", _autocast_fwd, key, with_keyset=True)
