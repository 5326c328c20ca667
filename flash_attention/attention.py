"""The forward pass of `flash_attn_func` on plain tensors: the kernel is chosen, what no kernel can
read is copied, and all of it is remembered for the next call of its kind."""

from typing import Any

import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.problem import AttentionProblem

from . import dispatch
from .checks.arguments import check_operands
from .checks.readable import filled_up, readable, writable_like
from .checks.scale import scale_or_default
from .heads import dense_width
from .interface import launch_again, launch_checked, output_like
from .serving.dense import served
from .serving.options import make_options

# Stands for "the kernel of our choice" where the cache of checked calls expects a configuration.
CHOSEN = object()
# The same where gradients are recorded, without and with `deterministic`: a call that is remembered
# by one of these has kernels for its gradients.
RECORDED = object(), object()


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None,
    causal: bool,
    *,
    with_lse: bool,
    key: object = CHOSEN,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(out, softmax_lse), the second None without `with_lse`; PyTorch does not record this. The
    scale is positive (checks/scale.py), and `key` what such calls are remembered by."""
    o = output_like(q)
    lse = lse_like(q) if with_lse else None
    if not launch_again(key, q, k, v, o, lse, softmax_scale, causal):
        return _first_call(q, k, v, o, lse, softmax_scale, causal, key=key)
    return o, lse


def attend_for_gradients(deterministic: bool, *call: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """`attend` with what a backward pass reads; the rest of its arguments in their order."""
    o, lse = attend(*call, with_lse=True, key=RECORDED[deterministic])
    assert lse is not None
    return o, lse


def lse_like(q: Any) -> torch.Tensor:
    """An uninitialised softmax_lse for `q`."""
    if not isinstance(q, torch.Tensor) or q.dim() != 4:
        return torch.empty(0)  # q is refused before this is used
    batch, seqlen_q, n_heads, _ = q.shape
    return torch.empty((batch, n_heads, seqlen_q), dtype=torch.float32, device=q.device)


def _first_call(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor | None,
    softmax_scale: float | None,
    causal: bool,
    key: object,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Chooses the kernel, copies what it cannot read, and launches. Returns output and lse."""
    check_operands(q, k, v, softmax_scale, causal)
    batch, seqlen_q, n_heads, d_head = q.shape
    d_v = v.shape[3]
    if o.stride(3) != 1 or d_v != d_head:
        o = writable_like(q, d_v)
    if o.numel() == 0:
        return o, lse
    problem = AttentionProblem(
        DType.from_torch_dtype(q.dtype), batch, seqlen_q, k.shape[1], n_heads, k.shape[2], d_head,
        d_v, causal=causal,
    )  # fmt: skip
    width = dense_width(problem, q.device)
    if width is None:
        options = make_options(d_head, softmax_scale, causal, (None, None), 0.0, 0)
        return served(q, k, v, options, {}, o=o, with_lse=lse is not None)
    if width != d_head or width != d_v:
        _filled_up(q, k, v, width, o, lse, softmax_scale, causal)
        return o, lse
    config = dispatch.choose(problem, q.device)
    q, k, v = map(readable, (q, k, v))
    launch_checked(config, q, k, v, o, lse, softmax_scale, causal, key=key)
    return o, lse


def _filled_up(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    width: int,
    o: torch.Tensor,
    lse: torch.Tensor | None,
    softmax_scale: float | None,
    causal: bool,
) -> None:
    """With copies that are filled up with zeros to a head dimension that dense kernels have."""
    scale = scale_or_default(softmax_scale, q.shape[3])
    q, k, v = (filled_up(x, width) for x in (q, k, v))
    wide = torch.empty_like(q)
    if not launch_again(CHOSEN, q, k, v, wide, lse, scale, causal):
        _first_call(q, k, v, wide, lse, scale, causal, key=CHOSEN)
    o.copy_(wide[..., : o.shape[3]])
