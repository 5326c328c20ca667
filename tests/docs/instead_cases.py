"""What refused calls of flash_attn_func are told to do instead, as code."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import pad

import flash_attention
from flash_helpers.check.gradients import attention_gradients

from .cases import Computed, draw
from .func_cases import computed


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    o = flash_attention.flash_attn_func(q, k, v, softmax_scale=scale)
    assert isinstance(o, Tensor)
    return o


def _padded() -> Computed:
    q, k, v = (draw((1, 70, 1, 80)) for _ in range(3))
    o = _attend(pad(q, (0, 16)), pad(k, (0, 16)), pad(v, (0, 16)), 80**-0.5)
    return o[..., :80], (q, k, v), {}


def _padded_gradients() -> Computed:
    q, k, v = (draw((1, 40, 1, 160)).requires_grad_() for _ in range(3))
    o = _attend(pad(q, (0, 32)), pad(k, (0, 32)), pad(v, (0, 32)), 160**-0.5)[..., :160]
    d_o = torch.randn_like(o)
    found = dict(zip(("d_q", "d_k", "d_v"), torch.autograd.grad(o, (q, k, v), d_o), strict=True))
    inputs = q.detach(), k.detach(), v.detach()
    assert attention_gradients(*inputs, d_o).problem_with(found) == ""
    return o.detach(), inputs, {}


def _cast() -> Computed:
    return computed(*(draw().float().half() for _ in range(3)))


def _with_batch() -> Computed:
    return computed(*(draw((64, 1, 128)).unsqueeze(0) for _ in range(3)))


def _one_dtype() -> Computed:
    q, v = draw(), draw()
    return computed(q, draw(dtype=torch.bfloat16).to(q.dtype), v)


def _smaller_v() -> Computed:
    """Two calls, with one half of v each."""
    q, k, v = (draw() for _ in range(3))
    halves = [
        _attend(q, k, pad(half, (0, 64)), 128**-0.5)[..., :64]
        for half in (v[..., :64], v[..., 64:])
    ]
    return torch.cat(halves, 3), (q, k, v), {}


def _one_batch() -> Computed:
    return computed(draw((2, 64, 1, 128)), *(draw().expand(2, -1, -1, -1) for _ in range(2)))


def _heads_first() -> Computed:
    q = draw((1, 3, 64, 128)).transpose(1, 2)
    return computed(q, *(draw((1, 3, 70, 128)).transpose(1, 2) for _ in range(2)))


def _split_keys() -> Computed:
    q, k, v = (draw((1, 64, 2, 128)) for _ in range(3))
    outputs, weights = [], []
    for part in (slice(0, 40), slice(40, 64)):
        o, lse, _ = flash_attention.flash_attn_func(
            q, k[:, part], v[:, part], return_attn_probs=True
        )
        outputs.append(o.float())
        weights.append(lse.transpose(1, 2)[..., None])
    share = torch.softmax(torch.stack(weights), 0)
    return (share * torch.stack(outputs)).sum(0).half(), (q, k, v), {}


FUNC_INSTEAD: Mapping[str, Callable[[], Computed]] = {
    "a head dimension that no family has": _padded,
    "a gradient for a head dimension without kernels for it": _padded_gradients,
    "fp32, fp64, fp8 or integers": _cast,
    "not four dimensions": _with_batch,
    "dtypes that differ": _one_dtype,
    "head dimensions that differ": _smaller_v,
    "batch sizes that differ": _one_batch,
    "query heads that are not a multiple of the KV heads": _heads_first,
    "sparse or jagged tensors": lambda: computed(draw(), draw().to_sparse().to_dense(), draw()),
    "a length above 2^31 - 1025": _split_keys,
}
