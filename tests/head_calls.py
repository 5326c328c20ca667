"""Calls of flash_attn_func with head dimensions that no dense kernel has, and values narrower than
keys, compared with attention in fp64: on the CPU and on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

import flash_attention
from flash_helpers.check.gradients import attention_gradients
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import ROW_FACTOR, compare

attend: Any = flash_attention.flash_attn_func  # whatever it returns
Qkv = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def draw(
    d: int,
    d_v: int,
    dtype: torch.dtype = torch.float16,
    lengths: tuple[int, int] = (37, 70),
    device: str = "cpu",
) -> Qkv:
    generator = torch.Generator(device).manual_seed(d)
    shapes = (lengths[0], 4, d), (lengths[1], 2, d), (lengths[1], 2, d_v)
    q, k, v = (
        torch.randn(2, *shape, generator=generator, dtype=dtype, device=device) for shape in shapes
    )
    return q, k, v


# Of values: rows of fewer have too few roundings to even out, and the row rule fails for the best
# that can be had (16: 1.42 eps in 60,000 rows), which is what such rows are measured by.
_NARROW = 32


# Fractions of an octave that weights are moved by before they are rounded: each is rounded in
# another place then, and the worst of a few thousand rows changes by up to 30 % with where.
_ALIGNMENTS = 8


def _rounded(qkv: Qkv, causal: bool, scale: float | None, largest_weight: float) -> torch.Tensor:
    """Attention in fp64 but for what every kernel rounds: weights of which the largest of a row is
    this, and the output."""
    q, k, v = (x.double().movedim(2, 1) for x in qkv)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * (q.shape[3] ** -0.5 if scale is None else scale)
    if causal:
        hidden = torch.ones_like(scores, dtype=torch.bool).triu(1 + k.shape[2] - q.shape[2])
        scores = scores.masked_fill(hidden, -torch.inf)
    largest = scores.amax(-1, keepdim=True).clamp(min=-1e300)
    weights = largest_weight * (scores - largest).exp()
    sums = weights.sum(-1, keepdim=True)
    o = weights.to(qkv[0].dtype).double() @ v / sums.where(sums > 0, 1.0)
    return o.movedim(1, 2).to(qkv[0].dtype)


def check(qkv: Qkv, *, causal: bool = False, scale: float | None = None) -> torch.Tensor:
    """Output and log-sum-exp; the output, if they are right."""
    q, k, v = qkv
    o, lse, nothing = attend(q, k, v, 0.0, scale, causal, return_attn_probs=True)
    assert nothing is None and o.shape == (*q.shape[:3], v.shape[3]) and o.dtype == q.dtype
    missing = q.shape[3] - v.shape[3]
    expected, expected_lse = attention_reference(
        q, k, pad(v, (0, missing)), scale, fp64=True, causal=causal
    )
    expected = expected[..., : v.shape[3]]
    outcome = compare(o, expected)
    if v.shape[3] < _NARROW and k.shape[1]:
        granted = max(
            compare(_rounded(qkv, causal, scale, 2 ** (-i / _ALIGNMENTS)), expected).relative
            for i in range(_ALIGNMENTS)
        )
        assert outcome.relative <= ROW_FACTOR * max(granted, 1 / ROW_FACTOR), outcome.describe()
    else:
        assert outcome.passed, outcome.describe()
    torch.testing.assert_close(lse.double(), expected_lse, rtol=1e-4, atol=1e-4)
    found: torch.Tensor = o
    return found


def check_gradients(qkv: Qkv, *, with_d_lse: bool = False, **options: Any) -> None:
    leaves = [x.detach().requires_grad_() for x in qkv]
    o, lse, _ = attend(*leaves, return_attn_probs=True, **options)
    torch.manual_seed(0)
    d_o = torch.randn_like(o)
    d_lse = torch.randn_like(lse) if with_d_lse else None
    outer = (d_o,) if d_lse is None else (d_o, d_lse)
    found = torch.autograd.grad((o, lse)[: len(outer)], leaves, outer)
    assert [x.shape for x in found] == [x.shape for x in qkv]
    q, k, v = (x.detach() for x in leaves)
    missing = q.shape[3] - v.shape[3]
    scale = options.get("softmax_scale")
    sign = -1 if scale and scale < 0 else 1  # the reference's tolerance is for positive scales
    expected = attention_gradients(
        sign * q, k, pad(v, (0, missing)), pad(d_o, (0, missing)), scale and sign * scale,
        d_lse=d_lse, causal=options.get("causal", False),
    )  # fmt: skip
    names = {"d_q": sign * found[0], "d_k": found[1], "d_v": pad(found[2], (0, missing))}
    assert expected.problem_with(names) == ""
