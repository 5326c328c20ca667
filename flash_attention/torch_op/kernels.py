"""What the operations compute: on CUDA and in the emulator, and of tensors without data."""

from itertools import compress
from typing import Any

import torch

from flash_helpers.base.dtypes import DType

from ..attention import attend, lse_like
from ..autograd import gradients
from ..checks.arguments import check_call
from ..checks.readable import writable_like
from ..checks.scale import with_positive_scale
from ..plain_calls import seen_call
from ..plain_gradients import seen_gradients
from .definition import LIBRARY, is_wanted

Tensors3 = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    deterministic: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    if q.is_cuda:
        launched: tuple[torch.Tensor, torch.Tensor] | None
        launched = seen_call()(q, k, v, softmax_scale, causal, False)
        if launched is not None:
            return launched
    q, softmax_scale = with_positive_scale(q, softmax_scale)
    o, lse = attend(q, k, v, softmax_scale, causal, with_lse=True)
    assert lse is not None
    return o, lse


def _fake_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    deterministic: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    check_call(q, k, v, _magnitude(softmax_scale), causal)
    DType.from_torch_dtype(q.dtype)
    return writable_like(q, v.shape[3]), lse_like(q)


def _bwd(
    d_o: torch.Tensor | None,
    d_lse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    softmax_scale: float | None,
    causal: bool,
    deterministic: bool,
    wanted: int,
) -> Tensors3:
    options = softmax_scale, causal, deterministic
    asked = is_wanted(wanted)
    found: tuple[torch.Tensor | None, ...] | None = None
    if q.is_cuda:
        found = seen_gradients()(d_o, d_lse, (q, k, v, o, lse), options, asked, False)
    if found is None:
        names = tuple(compress("qkv", asked))
        found = gradients((*options, names), d_o, d_lse, q, k, v, o, lse)
    d_q, d_k, d_v = (
        _nothing(x) if gradient is None else gradient
        for gradient, x in zip(found, (q, k, v), strict=False)
    )
    return d_q, d_k, d_v


def _fake_bwd(
    d_o: Any, d_lse: Any, q: Any, k: Any, v: Any, o: Any, lse: Any,
    softmax_scale: Any, causal: Any, deterministic: Any, wanted: int,
) -> Tensors3:  # fmt: skip
    d_q, d_k, d_v = (
        writable_like(x) if asked else _nothing(x)
        for x, asked in zip((q, k, v), is_wanted(wanted), strict=True)
    )
    return d_q, d_k, d_v


def _nothing(x: torch.Tensor) -> torch.Tensor:
    """The gradient that is not asked for."""
    return x.new_empty(0)


def _magnitude(softmax_scale: Any) -> float | None:
    """As far as it can be checked without its sign; none of a symbolic one."""
    if softmax_scale is None or isinstance(softmax_scale, torch.SymFloat):
        return None
    return abs(softmax_scale) or None


def register() -> None:
    for device in ("CPU", "CUDA"):
        LIBRARY.impl("fwd", _fwd, device)
        LIBRARY.impl("bwd", _bwd, device)
    torch.library.register_fake("flash_attention::fwd", _fake_fwd, lib=LIBRARY)
    torch.library.register_fake("flash_attention::bwd", _fake_bwd, lib=LIBRARY)
