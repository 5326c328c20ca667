"""What refused calls of flash_attn_func are told to do instead, as code."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import pad

import flash_attention

from .cases import SHAPE, Computed, draw
from .func_cases import computed


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    o = flash_attention.flash_attn_func(q, k, v, softmax_scale=scale)
    assert isinstance(o, Tensor)
    return o


def _cast() -> Computed:
    return computed(*(draw().float().half() for _ in range(3)))


def _with_batch() -> Computed:
    return computed(*(draw((64, 1, 128)).unsqueeze(0) for _ in range(3)))


def _one_dtype() -> Computed:
    q, v = draw(), draw()
    return computed(q, draw(dtype=torch.bfloat16).to(q.dtype), v)


def _filled_up(*names: str) -> Computed:
    """Of heads of 64 elements where the others have 128."""
    q, k, v = (draw((*SHAPE[:3], 64 if name in names else 128)) for name in "qkv")
    q, k = (pad(x, (0, 128 - x.shape[3])) for x in (q, k))
    return _attend(q, k, v, 64**-0.5), (q, k, v), {"scale": 64**-0.5}


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
    "fp32, fp64, fp8 or integers": _cast,
    "not four dimensions": _with_batch,
    "dtypes that differ": _one_dtype,
    "head dimensions of q and k that differ": lambda: _filled_up("k"),
    "values that are wider than keys": lambda: _filled_up("q", "k"),
    "batch sizes that differ": _one_batch,
    "query heads that are not a multiple of the KV heads": _heads_first,
    "sparse or jagged tensors": lambda: computed(draw(), draw().to_sparse().to_dense(), draw()),
    "a length above 2^31 - 1025": _split_keys,
}
