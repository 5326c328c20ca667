"""Inputs on which an attention kernel's rounding shows, each by name.

Where weights of a row lie between powers of two decides how much their rounding to 16 bits costs:
with the row's maximum as the exponent's reference the heaviest is exactly 1. The distributions
differ in where a row's heavy keys stand, and by how much they stand out. Scores are "nats up" when
the softmax scale is the usual 1/sqrt(d). Kernels walk the keys from the last block to the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Distribution:
    """How q, k and v are drawn, and the largest row error that is allowed on it, in eps (2^-11 for
    fp16, 2^-8 for bf16): the worst row's and the mean."""

    summary: str
    change: Callable[[Tensors], Tensors]  # of normally distributed q, k, v, in fp32
    worst: float
    mean: float


def draw(
    name: str,
    shape_q: tuple[int, int, int, int],
    shape_k: tuple[int, int, int, int],
    dtype: torch.dtype,
    generator: torch.Generator,
) -> Tensors:
    """q, k, v (batch, sequence, heads, d), rounded to `dtype`, on the generator's device."""
    import torch

    shapes = (shape_q, shape_k, shape_k)
    q, k, v = (torch.randn(s, generator=generator, device=generator.device) for s in shapes)
    q, k, v = (x.to(dtype) for x in DISTRIBUTIONS[name].change((q, k, v)))
    return q, k, v


def _all_times(factor: float) -> Callable[[Tensors], Tensors]:
    return lambda tensors: (factor * tensors[0], factor * tensors[1], factor * tensors[2])


def _peaked(tensors: Tensors) -> Tensors:
    """Each query resembles one key: that score stands out by far, at another place in each row."""
    import torch

    q, k, v = tensors
    group = q.shape[2] // k.shape[2]
    places = torch.arange(q.shape[1], device=q.device) * 7919 % k.shape[1]
    return 1.5 * k[:, places].repeat_interleave(group, dim=2), k, v


def _sizes(last: float, first: float) -> Callable[[Tensors], Tensors]:
    """Keys by size: maxima grow from the last key to the first."""
    import torch

    def change(tensors: Tensors) -> Tensors:
        q, k, v = tensors
        sizes = torch.linspace(first, last, k.shape[1], device=k.device)
        return q, k * sizes[:, None, None], v

    return change


def _with_common_column(tensors: Tensors, nats: torch.Tensor) -> Tensors:
    """Column 0 adds `nats` [key] to the scores of every row."""
    q, k, v = (x.clone() for x in tensors)
    size = 4.0
    q[..., 0] = size
    k[..., 0] = (nats * (math.sqrt(q.shape[3]) / size)).to(k.device)[:, None]
    return q, k, v


def _outstanding(*nats: float) -> Callable[[Tensors], Tensors]:
    """Single keys that every row sees so much above the others, spread over the sequence."""
    import torch

    def change(tensors: Tensors) -> Tensors:
        n_keys = tensors[1].shape[1]
        added = torch.zeros(n_keys)
        for index, height in enumerate(nats):
            added[n_keys * (2 * index + 1) // (2 * len(nats) + 1)] = height
        return _with_common_column(tensors, added)

    return change


def _sink(tensors: Tensors) -> Tensors:
    import torch

    added = torch.zeros(tensors[1].shape[1])
    added[0] = 10.0
    return _with_common_column(tensors, added)


def _step(tensors: Tensors) -> Tensors:
    """The block that comes first sees smaller scores than all others."""
    import torch

    n_keys = tensors[1].shape[1]
    added = torch.zeros(n_keys)
    added[-min(128, n_keys // 2) :] = -1.0
    return _with_common_column(tensors, added)


def _large(tensors: Tensors) -> Tensors:
    """Scores up to some 6e4 that fp32 holds exactly, so that only the softmax rounds."""
    import torch

    q, k, v = tensors
    return torch.round(2 * q).clamp(-8, 8), torch.round(2 * k).clamp(-8, 8) * 2048, v


def _large_and_alike(tensors: Tensors) -> Tensors:
    """The same size for all of a row's scores, of either sign, with small differences: integers."""
    import torch

    q, k, v = (x.clone() for x in tensors)
    q, k = torch.round(q), torch.round(k)
    q[..., 0], k[..., 0] = 1024.0 * torch.sign(q[..., 1] + 0.5), 480.0
    return q, k, v


RANDN = "randn"
DISTRIBUTIONS = {
    RANDN: Distribution("normally distributed", lambda tensors: tensors, 1.05, 0.61),
    "times-3": Distribution("q, k and v times 3", _all_times(3.0), 1.0, 0.5),
    "peaked": Distribution("each query is 1.5 times a key", _peaked, 1.0, 0.5),
    "growing": Distribution("keys that grow sixfold", _sizes(1.0, 6.0), 1.0, 0.56),
    "fading-in": Distribution("keys from 0.3 to 3", _sizes(0.3, 3.0), 1.0, 0.56),
    "two-keys": Distribution("two keys 14 and 15.5 nats up", _outstanding(15.5, 14.0), 1.0, 0.56),
    "three-keys": Distribution(
        "three keys 14 to 15.5 nats up", _outstanding(15.5, 14.7, 14.0), 1.0, 0.56
    ),
    "step": Distribution("the first block one nat down", _step, 1.0, 0.6),
    "sink": Distribution("the first key 10 nats up", _sink, 1.0, 0.5),
    "uniform": Distribution("q times 0.02", lambda t: (0.02 * t[0], t[1], t[2]), 1.0, 0.56),
    "mean-3": Distribution("v with mean 3", lambda t: (t[0], t[1], t[2] + 3.0), 0.7, 0.42),
    "wide": Distribution("q times 90", lambda t: (90.0 * t[0], t[1], t[2]), 1.0, 0.5),
    "large": Distribution("scores up to 6e4, exact", _large, 1.0, 0.35),
    "large-alike": Distribution("scores of 6e4 that differ little", _large_and_alike, 1.0, 0.56),
}
