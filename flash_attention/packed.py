"""flash-attn's functions of q, k and v in one tensor, of which views are taken, and no copies."""

import torch

from .front_door import Result, flash_attn_func
from .serving import flash_attn_varlen_func
from .serving.options import Window
from .serving.result import Result as ServedResult

_NO_WINDOW = (-1, -1)


def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    dropout_p: float = 0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _NO_WINDOW,
    softcap: float = 0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    num_heads_q: int | None = None,
) -> Result:
    """`flash_attn_func` of `qkv` (batch, seqlen, 3, heads, d_head), or with `num_heads_q`
    (batch, seqlen, num_heads_q + 2 * kv_heads, d_head). Raises what that does."""
    if num_heads_q is None:
        q, k, v = _parts("qkv", qkv, ("batch", "seqlen"), 3)
    else:
        q, k, v = _by_heads(qkv, num_heads_q)
    return flash_attn_func(
        q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
        deterministic, return_attn_probs,
    )  # fmt: skip


def flash_attn_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    dropout_p: float = 0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _NO_WINDOW,
    softcap: float = 0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """`flash_attn_func` of `kv` (batch, seqlen_k, 2, kv_heads, d_head). Raises what that does."""
    k, v = _parts("kv", kv, ("batch", "seqlen_k"), 2)
    return flash_attn_func(
        q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
        deterministic, return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int | torch.Tensor | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _NO_WINDOW,
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> ServedResult:
    """`flash_attn_varlen_func` of `qkv` (total, 3, heads, d). Raises what that does."""
    q, k, v = _parts("qkv", qkv, ("total",), 3)
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale, causal,
        window_size, softcap, alibi_slopes, deterministic, return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int | torch.Tensor | None = None,
    max_seqlen_k: int | torch.Tensor | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _NO_WINDOW,
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> ServedResult:
    """`flash_attn_varlen_func` of `kv` (total_k, 2, kv_heads, d). Raises what that does."""
    k, v = _parts("kv", kv, ("total_k",), 2)
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale,
        causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs,
    )  # fmt: skip


def _parts(
    name: str, packed: torch.Tensor, leading: tuple[str, ...], n: int
) -> tuple[torch.Tensor, ...]:
    """The `n` tensors in the dimension behind the `leading` ones."""
    axis = len(leading)
    if packed.dim() != axis + 3 or packed.shape[axis] != n:
        expected = ", ".join((*leading, str(n), "heads", "d_head"))
        raise ValueError(f"{name} has shape {tuple(packed.shape)}: expected ({expected})")
    return packed.unbind(axis)


def _by_heads(qkv: torch.Tensor, num_heads_q: int) -> tuple[torch.Tensor, ...]:
    others = qkv.shape[2] - num_heads_q if qkv.dim() == 4 else 0
    if num_heads_q < 1 or others < 2 or others % 2:
        raise ValueError(
            f"qkv has shape {tuple(qkv.shape)}, and num_heads_q is {num_heads_q}: expected (batch, "
            "seqlen, num_heads_q + 2 * kv_heads, d_head)"
        )
    return torch.split(qkv, [num_heads_q, others // 2, others // 2], dim=2)
