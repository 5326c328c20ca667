"""Functions of flash-attn 2 under their own names, for code that imports that package:

    import flash_attention.compat as flash_attn

What is not here yet is not here at all: `hasattr` and `from ... import` say so, as with an older
flash-attn.
"""

from typing import Any

import torch

from .front_door import Result, flash_attn_func
from .serving import flash_attn_varlen_func, flash_attn_with_kvcache

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
]

# Whose functions these are in names, arguments and results: code asks for it before it calls.
__version__ = "2.8.3"


def flash_attn_kvpacked_func(
    q: torch.Tensor, kv: torch.Tensor, dropout_p: float = 0, **options: Any
) -> Result:
    """`flash_attn_func` of k and v in one tensor (batch, seqlen_k, 2, kv_heads, d_head)."""
    _check_packed("kv", kv, 2)
    k, v = kv.unbind(2)
    return flash_attn_func(q, k, v, dropout_p, **options)


def flash_attn_qkvpacked_func(qkv: torch.Tensor, dropout_p: float = 0, **options: Any) -> Result:
    """`flash_attn_func` of q, k and v in one tensor (batch, seqlen, 3, heads, d_head)."""
    _check_packed("qkv", qkv, 3)
    q, k, v = qkv.unbind(2)
    return flash_attn_func(q, k, v, dropout_p, **options)


def _check_packed(name: str, packed: torch.Tensor, n: int) -> None:
    if packed.dim() != 5 or packed.shape[2] != n:
        raise ValueError(
            f"{name} has shape {tuple(packed.shape)}: expected (batch, seq, {n}, heads, d_head)"
        )
