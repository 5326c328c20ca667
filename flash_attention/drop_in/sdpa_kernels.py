"""What PyTorch's scaled_dot_product_attention calls for FlashAttention, forward and backward: with
these kernels where they serve the call, else with PyTorch's own.

Tensors are (batch, heads, seq, d). Each function gets PyTorch's own and the dispatch keys first.
"""

from functools import cache
from typing import Any

import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.problem import AttentionProblem

from .. import autograd, heads
from ..attention import attend
from ..checks.scale import with_positive_scale
from ..memory import without_memory
from ..plain_calls import seen_call
from ..plain_gradients import seen_gradients

_HALF = (torch.float16, torch.bfloat16)
_ALL = True, True, True  # gradients


def forward(
    original: Any, keys: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False,
    *, scale: float | None = None,
) -> Any:  # fmt: skip
    if not (dropout_p or return_debug_mask):
        found = seen_call()(q, k, v, scale, is_causal, True)
        if found is None and is_served(q, k, v):
            qkv = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
            o, lse = _attend(qkv, scale, is_causal)
            found = o.transpose(1, 2), lse
        if found is not None:
            o, lse = found
            seed, offset, mask = map(torch.empty_like, _of_dropout(q.device, q.dtype))
            return o, lse, None, None, q.shape[2], k.shape[2], seed, offset, mask
    return original.call_boxed(
        keys, q, k, v, dropout_p, is_causal, return_debug_mask, scale=scale
    )  # fmt: skip


@cache
def _of_dropout(device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Like which the two numbers and the mask are that only dropout needs; each call has its own,
    as outputs are."""
    return (
        without_memory((2,), device, torch.uint64),
        without_memory((), device, torch.uint64),
        without_memory((0,), device, dtype),
    )


def backward(
    original: Any, keys: Any, grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor,
    v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, first_q: Any, first_k: Any, max_q: int,
    max_k: int, dropout_p: float, is_causal: bool, seed: Any, offset: Any,
    *, scale: float | None = None,
) -> Any:  # fmt: skip
    if not dropout_p and first_q is None:
        options = scale, is_causal, torch._C._get_deterministic_algorithms()
        found = seen_gradients()(grad, None, (q, k, v, o, lse), options, _ALL, True)
        if found is not None:
            return found[:3]
        if is_served(q, k, v, gradients=True):
            return _gradients(grad, (q, k, v), o, lse, is_causal, scale)
    return original.call_boxed(
        keys, grad, q, k, v, o, lse, first_q, first_k, max_q, max_k, dropout_p, is_causal,
        seed, offset, scale=scale,
    )  # fmt: skip


def cpu_forward(
    original: Any, keys: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
    dropout_p: float = 0.0, is_causal: bool = False,
    *, attn_mask: torch.Tensor | None = None, scale: float | None = None,
) -> Any:  # fmt: skip
    """There a mask is another input, and `is_causal` hides keys from the first on."""
    plain = not dropout_p and attn_mask is None and not (is_causal and q.shape[2] != k.shape[2])
    if plain and is_served(q, k, v):
        qkv = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        o, lse = _attend(qkv, scale, is_causal)
        return o.transpose(1, 2), lse
    return original.call_boxed(
        keys, q, k, v, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )


def cpu_backward(
    original: Any, keys: Any, grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor,
    v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, dropout_p: float, is_causal: bool,
    *, attn_mask: torch.Tensor | None = None, scale: float | None = None,
) -> Any:  # fmt: skip
    plain = not dropout_p and attn_mask is None and not (is_causal and q.shape[2] != k.shape[2])
    if plain and is_served(q, k, v, gradients=True):
        return _gradients(grad, (q, k, v), o, lse, is_causal, scale)
    return original.call_boxed(
        keys, grad, q, k, v, o, lse, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )


def _attend(
    qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor], scale: float | None, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():  # PyTorch records the function that calls this
        q, scale = with_positive_scale(qkv[0], scale)
        o, lse = attend(q, qkv[1], qkv[2], scale, causal, with_lse=True)
    assert lse is not None
    return o, lse


def _gradients(
    grad: torch.Tensor,
    qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    o: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    scale: float | None,
) -> tuple[Any, ...]:
    options = scale, causal, torch.are_deterministic_algorithms_enabled(), ("q", "k", "v")
    grad, q, k, v, o = (x.transpose(1, 2) for x in (grad, *qkv, o))
    with torch.no_grad():
        found = autograd.gradients(options, grad, None, q, k, v, o, lse)
    return tuple(x.transpose(1, 2) for x in found if x is not None)


def is_served(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, gradients: bool = False
) -> bool:
    """Whether these kernels take such tensors on their device, or such tensors' gradients."""
    fit = q.shape[3] == k.shape[3] and 0 < v.shape[3] <= q.shape[3]
    if q.dtype not in _HALF or not fit or not q.numel() or not k.numel():
        return False
    deterministic = gradients and torch.are_deterministic_algorithms_enabled()
    kind = q.dtype, q.shape[3], v.shape[3], q.device, gradients, deterministic
    return bool(_is_kernel_now(*kind))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _is_kernel_now(*kind: Any) -> bool:
    """torch.compile asks once and goes on with the answer."""
    return _is_kernel(*kind)


@cache
def _is_kernel(
    dtype: torch.dtype, d_head: int, d_v: int, device: torch.device, gradients: bool,
    deterministic: bool,
) -> bool:  # fmt: skip
    """Of any length, with and without the mask."""
    problem = AttentionProblem(
        DType.from_torch_dtype(dtype), 1, 1, 1, 1, 1, d_head, d_v,
        causal=True, gradients=gradients, deterministic=deterministic,
    )  # fmt: skip
    try:
        heads.kernels(problem, device)
    except ValueError:
        return False
    return True
