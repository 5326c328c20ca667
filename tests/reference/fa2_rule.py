"""FlashAttention-2's rule, max |o - ref16| <= 2 max |naive16 - ref16|: what the row rule of
flash_helpers.check.tolerance is compared with."""

from __future__ import annotations

import math

import torch

from flash_helpers.check.reference import check_shapes, chunks, full_precision

FA2_FACTOR = 2.0


def attention_low_precision(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None = None
) -> torch.Tensor:
    """The same formula with every intermediate rounded to the inputs' 16 bits: the yardstick of
    FlashAttention-2's rule. Scales k rather than q, as FlashAttention-2's tests do for it."""
    check_shapes(q, k, v)
    batch, seqlen_q, n_heads, d_head = q.shape
    o = torch.empty_like(q)
    group = n_heads // k.shape[2]
    scale = d_head**-0.5 if scale is None else scale
    with full_precision(q.device.type):
        for b, head, rows in chunks(batch, n_heads, seqlen_q, k.shape[1], 4):
            scores = q[b, rows, head] @ (k[b, :, head // group] * scale).T
            weights = torch.softmax(scores, dim=-1).to(q.dtype)
            o[b, rows, head] = weights @ v[b, :, head // group]
    return o


def fa2_rule(actual: torch.Tensor, reference: torch.Tensor, naive: torch.Tensor) -> float:
    """FlashAttention-2's rule as a fraction of what it allows: at most 1 is right.

    `reference` is the fp32 result, `naive` the all-16-bit one (attention_low_precision)."""
    rounded = reference.to(actual.dtype).to(reference.dtype)
    allowed = FA2_FACTOR * float((naive.to(reference.dtype) - rounded).abs().max())
    error = float((actual.to(reference.dtype) - rounded).abs().max())
    if math.isnan(error) or math.isnan(allowed):
        return float("inf")
    return error / allowed if allowed else (0.0 if error == 0 else float("inf"))
