"""Attention of one sequence as it is served, as its definition says, in fp64: windows, padding,
soft caps and sinks. What serving kernels are compared with, sequence by sequence.

Query i of seqlen_q stands at key a = i + seqlen_k - seqlen_q, whatever the padding is, and sees the
keys j with max(leftpad, a - left) <= j < min(seqlen_k, a + right + 1); a negative limit is none,
and `causal` makes right 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..base.lazy import torch
from .reference import full_precision


@dataclass(frozen=True)
class ServeRule:
    """What a call asks for, beside its tensors. `scale` defaults to 1/sqrt(d)."""

    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    scale: float | None = None

    def visible(
        self, seqlen_q: int, seqlen_k: int, leftpad: int = 0, device: torch.device | str = "cpu"
    ) -> torch.Tensor:
        """(seqlen_q, seqlen_k): whether a query sees a key."""
        left, right = self.window
        right = 0 if self.causal else right
        places = torch.arange(seqlen_q, device=device)[:, None] + seqlen_k - seqlen_q
        keys = torch.arange(seqlen_k, device=device)[None]
        seen = (keys >= leftpad).expand(seqlen_q, seqlen_k)
        if left >= 0:
            seen = seen & (keys >= places - left)
        if right >= 0:
            seen = seen & (keys <= places + right)
        return seen


def attend_sequence(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    rule: ServeRule,
    *,
    leftpad: int = 0,
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(o, lse) of one sequence, in fp64: q (seqlen_q, heads, d), k (seqlen_k, kv heads, d) and v
    (seqlen_k, kv heads, d_v) give o (seqlen_q, heads, d_v) and lse (heads, seqlen_q).

    A sink adds exp(sink of the head) to every denominator. A query without a key has output 0 and
    log-sum-exp -inf, or its sink. Keys that no query sees may hold anything.
    """
    seqlen_q, n_heads, d_head = q.shape
    seqlen_k, n_kv, d_v = v.shape
    scale = d_head**-0.5 if rule.scale is None else rule.scale
    seen = rule.visible(seqlen_q, seqlen_k, leftpad, q.device)
    # Heads that share keys are rows of one product: repeated for 128 heads, a latent cache of
    # 100,000 keys would fill a GPU's memory.
    n_rows = n_heads // n_kv * seqlen_q if n_kv else 0
    queries = q.double().movedim(1, 0).reshape(n_kv, n_rows, d_head)
    keys, values = (x.double().movedim(1, 0) for x in (k, v))
    values = torch.where(seen.any(dim=0)[:, None], values, 0.0)
    with full_precision(q.device.type):
        scores = scale * (queries @ keys.transpose(1, 2)).view(n_heads, seqlen_q, seqlen_k)
        if rule.softcap:
            scores = rule.softcap * torch.tanh(scores / rule.softcap)
        scores = scores.masked_fill(~seen, -math.inf)
        terms = [scores]
        if sinks is not None:
            terms.append(sinks.double()[:, None, None].expand(n_heads, seqlen_q, 1))
        lse = torch.logsumexp(torch.cat(terms, dim=2), dim=2)
        weights = torch.where(seen, torch.exp(scores - lse[..., None]), 0.0)
        o = weights.view(n_kv, n_rows, seqlen_k) @ values
        return o.view(n_heads, seqlen_q, d_v).movedim(0, 1), lse


def served_weights(
    scores: torch.Tensor, rows: slice, seqlen_q: int, rule: ServeRule, sink: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | float]:
    """The weights of some queries of one head, of scaled scores (queries, keys); and the slopes of
    the soft cap there."""
    slopes: torch.Tensor | float = 1.0
    if rule.softcap:
        capped = torch.tanh(scores / rule.softcap)
        scores, slopes = rule.softcap * capped, 1 - capped.square()
    seen = rule.visible(seqlen_q, scores.shape[1], device=scores.device)[rows]
    scores = scores.masked_fill(~seen, -math.inf)
    of_sink = scores.new_full((), -math.inf) if sink is None else sink.to(scores.dtype)
    lse = torch.logaddexp(torch.logsumexp(scores, dim=1), of_sink)[:, None]
    return torch.where(seen, torch.exp(scores - lse), 0.0), slopes
