"""What a replaced scaled_dot_product_attention is compared with, on the CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import flash_attention

Qkv = tuple[Tensor, Tensor, Tensor]
sdpa: Any = torch.nn.functional.scaled_dot_product_attention


def ours(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """flash_attn_func of tensors as sdpa takes them: (batch, heads, seq, d_head)."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    o = flash_attention.flash_attn_func(q, k, v, **options)
    assert isinstance(o, Tensor)
    return o.transpose(1, 2)


def with_gradients(call: Callable[..., Tensor], qkv: Qkv) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in qkv]
    o = call(*leaves)
    return [o.detach(), *torch.autograd.grad(o, leaves, torch.ones_like(o))]
