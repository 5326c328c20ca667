"""The forward pass of `flash_attn_func` on plain tensors: the kernel is chosen, what no kernel can
read is copied, and all of it is remembered for the next call of its kind."""

from typing import Any

import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.problem import AttentionProblem

from . import dispatch
from .checks.arguments import check_operands
from .checks.readable import readable, writable_like
from .interface import launch_again, launch_checked, output_like

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
        o = _first_call(q, k, v, o, lse, softmax_scale, causal, key=key)
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
) -> torch.Tensor:
    """Chooses the kernel, copies what it cannot read, and launches. Returns the output."""
    check_operands(q, k, v, softmax_scale, causal)
    if o.stride(3) != 1:
        o = writable_like(q)
    if o.numel() == 0:
        return o
    batch, seqlen_q, n_heads, d_head = q.shape
    problem = AttentionProblem(
        DType.from_torch_dtype(q.dtype), batch, seqlen_q, k.shape[1], n_heads, k.shape[2], d_head,
        causal=causal,
    )  # fmt: skip
    config = dispatch.choose(problem, q.device)
    q, k, v = map(readable, (q, k, v))
    launch_checked(config, q, k, v, o, lse, softmax_scale, causal, key=key)
    return o
