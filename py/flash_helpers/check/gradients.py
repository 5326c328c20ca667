"""The gradients of attention as their definition says, in fp32 or fp64, and when a backward pass
counts as right. Layout and blocks as in reference.py.

The rule, for each row: ||error|| is at most a factor times

    dQ: eps (||ref|| + doubt + LONE largest) + u (sqrt(d) + scale ||K||)
    dK: the same with Q
    dV: eps ||ref|| + u (sqrt(d) + ||dO||)

where eps is half a unit in the last place, u is half of fp16's smallest number (0 for bf16), and
matrices are those of the row's head, or of its group of heads. Errors relative to the row alone
would fail honest kernels where the true gradient vanishes: dS = P (dP - D) inherits the rounding of
the output that D = sum(dO O) is taken from. `doubt` is what an error of eps in every D does to the
row: of dQ_i it is scale (|dO_i| |O_i| + |dlse_i|) |sum_j P_ij K_j|; in dK_j the queries' errors are
independent, and add up as the root of a sum of squares.

dK_j is the sum of the queries' terms dS_ij Q_i, dQ_i that of the keys' dS_ij K_j, whose dS are
rounded to 16 bits: one by up to eps, many together by half of that. `largest` is max^2 / root of
the sum of squares, of the terms' norms: all of a row that one term makes up, and next to nothing of
a sum of many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..base.dtypes import DType
from ..base.lazy import torch
from .reference import check_shapes, chunks, full_precision, hidden_keys
from .serving import ServeRule, served_weights

# Worst rows of correct kernels before the factor: dQ 0.57, dK 0.72, dV 1.28. With P rounded to 16
# bits before it becomes dS: 0.95 to 1.0; with D left out, a block skipped or added twice: 29 and
# more; with a scale that is 1 % off: 11 (fp16), 1.5 (bf16).
FACTORS = {"d_q": 0.9, "d_k": 0.9, "d_v": 1.4}
# Of 4,000 keys and one query the worst row of dK is 1.11 before the factor without it, 0.8 with it;
# with P rounded to 16 bits before it becomes dS 1.0 to 1.2 with it. Of a sink and one or two keys
# the worst row of dQ, computed in fp64 but for the roundings of O, dS and dQ, is 1.06 without it.
LONE = 0.45
HALF_OF_SMALLEST = {DType.FP16: 2.0**-25, DType.BF16: 0.0}


@dataclass(frozen=True)
class Gradients:
    """Of q, k and v, each shaped like it; and for each of their rows, what the rule allows."""

    gradients: dict[str, torch.Tensor]  # by name: d_q, d_k, d_v
    allowed: dict[str, torch.Tensor]

    def worst_rows(self, actual: dict[str, torch.Tensor]) -> dict[str, float]:
        """The largest error of a row of each gradient given, in units of what is allowed: at most
        1 is right. NaN and infinity are infinitely wrong; a row that must be 0 must be exactly."""
        found = {}
        for name, got in actual.items():
            expected = self.gradients[name]
            if got.shape != expected.shape:
                raise ValueError(f"{name} has shape {got.shape}, expected {expected.shape}")
            error = (got.to(expected.dtype) - expected).norm(dim=-1)
            rows = torch.where(error == 0, error, error / self.allowed[name])
            rows.masked_fill_(~rows.isfinite(), math.inf)
            found[name] = float(rows.max()) if rows.numel() else 0.0
        return found

    def problem_with(self, actual: dict[str, torch.Tensor]) -> str:
        """What is wrong, in a sentence; or an empty string."""
        wrong = [
            f"the worst row of {name} has {worst:.3g} of the allowed error"
            for name, worst in self.worst_rows(actual).items()
            if not worst <= 1
        ]
        return "; ".join(wrong)


def attention_gradients(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    d_o: torch.Tensor,
    scale: float | None = None,
    *,
    d_lse: torch.Tensor | None = None,
    fp64: bool = True,
    causal: bool = False,
    dtype: DType | None = None,
    served: ServeRule | None = None,
    sinks: torch.Tensor | None = None,
) -> Gradients:
    """The gradients of sum(d_o * o) + sum(d_lse * lse), where (o, lse) is what
    `attention_reference` gives, computed and returned in fp64 (or fp32); with `served`, which says
    what is causal and the scale, what `serving.attend_sequence` gives.

    `d_lse` is (batch, heads, seq_q); None: 0. `dtype` (default: that of q) is the type whose
    rounding is granted. A row that sees no key takes part in nothing.
    """
    check_shapes(q, k, v)
    granted = dtype or DType.from_torch_dtype(q.dtype)
    exact = torch.float64 if fp64 else torch.float32
    batch, seqlen_q, n_heads, d_head = q.shape
    d_q, d_k, d_v = (torch.zeros(x.shape, dtype=exact, device=q.device) for x in (q, k, v))
    q_doubt = torch.zeros(q.shape[:3], dtype=exact, device=q.device)
    k_doubt = torch.zeros(k.shape[:3], dtype=exact, device=q.device)  # squared
    largest, squares = torch.zeros_like(k_doubt), torch.zeros_like(k_doubt)
    group = n_heads // k.shape[2]
    scale = served.scale if served is not None else scale
    scale = d_head**-0.5 if scale is None else scale
    with full_precision(q.device.type):
        for b, head, rows in chunks(batch, n_heads, seqlen_q, k.shape[1], d_q.element_size()):
            kv_head = head // group
            queries, outer = (x[b, rows, head].to(exact) for x in (q, d_o))
            keys, values = (x[b, :, kv_head].to(exact) for x in (k, v))
            scores = scale * (queries @ keys.T)
            slopes: torch.Tensor | float = 1.0
            if served is None:
                weights = _weights(scores, rows, seqlen_q, causal)
            else:
                sink = None if sinks is None else sinks[head]
                weights, slopes = served_weights(scores, rows, seqlen_q, served, sink)
            d_weights = outer @ values.T
            dots = (weights * d_weights).sum(dim=-1, keepdim=True)
            if d_lse is not None:
                dots -= d_lse[b, head, rows].to(exact)[:, None]
            d_scores = scale * weights * (d_weights - dots) * slopes
            d_q[b, rows, head] = d_scores @ keys
            d_k[b, :, kv_head] += d_scores.T @ queries
            d_v[b, :, kv_head] += weights.T @ outer
            of_dots = abs(scale) * outer.norm(dim=-1) * (weights @ values).norm(dim=-1)
            if d_lse is not None:
                of_dots += abs(scale) * d_lse[b, head, rows].to(exact).abs()
            q_doubt[b, rows, head] = of_dots * (weights @ keys).norm(dim=-1)
            norms = queries.norm(dim=-1)
            if len(keys):
                terms = (d_scores * keys.norm(dim=-1)).square()
                q_doubt[b, rows, head] += _lone(terms.amax(dim=1), terms.sum(dim=1))
            k_doubt[b, :, kv_head] += weights.T.square() @ (of_dots * norms).square()
            terms = d_scores.T.square() * norms.square()
            largest[b, :, kv_head] = largest[b, :, kv_head].maximum(terms.amax(dim=1))
            squares[b, :, kv_head] += terms.sum(dim=1)
        doubts = q_doubt, k_doubt.sqrt() + _lone(largest, squares)
        allowed = _allowed(q, k, d_o, (d_q, d_k, d_v), doubts, abs(scale), granted)
    return Gradients(dict(zip(FACTORS, (d_q, d_k, d_v), strict=True)), allowed)


def _lone(largest: torch.Tensor, squares: torch.Tensor) -> torch.Tensor:
    """Of the largest squared norm of a row's terms, and the sum of all."""
    return LONE * (largest / squares.sqrt()).nan_to_num(0.0)


def _weights(scores: torch.Tensor, rows: slice, seqlen_q: int, causal: bool) -> torch.Tensor:
    seqlen_k = scores.shape[1]
    if causal:
        scores.masked_fill_(hidden_keys(rows, seqlen_q, seqlen_k, scores.device), -math.inf)
    weights = torch.softmax(scores, dim=-1)
    if causal:  # a softmax over nothing but -inf is NaN
        weights[: max(0, seqlen_q - seqlen_k - rows.start)] = 0.0
    return weights


def _allowed(
    q: torch.Tensor,
    k: torch.Tensor,
    d_o: torch.Tensor,
    gradients: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    doubts: tuple[torch.Tensor, torch.Tensor],
    scale: float,
    dtype: DType,
) -> dict[str, torch.Tensor]:
    d_q, d_k, d_v = (x.norm(dim=-1) for x in gradients)
    eps, smallest = dtype.eps, HALF_OF_SMALLEST[dtype]
    group = q.shape[2] // k.shape[2]

    def of_heads(x: torch.Tensor) -> torch.Tensor:
        """(batch, 1, heads): the norms of the matrices."""
        return x.to(d_q.dtype).square().sum(dim=(1, 3)).sqrt()[:, None]

    def of_groups(x: torch.Tensor) -> torch.Tensor:
        squares = of_heads(x).square()
        return squares.view(len(x), 1, -1, group).sum(dim=3).sqrt()

    root = q.shape[3] ** 0.5
    keys = of_heads(k).repeat_interleave(group, dim=2)
    rows = {
        "d_q": eps * (d_q + doubts[0]) + smallest * (root + scale * keys),
        "d_k": eps * (d_k + doubts[1]) + smallest * (root + scale * of_groups(q)),
        "d_v": eps * d_v + smallest * (root + of_groups(d_o)),
    }
    # What no query or key reaches, and must be 0.
    blind = {
        "d_q": (doubts[0] == 0) & (d_q == 0),
        "d_k": (doubts[1] == 0) & (d_k == 0),
        "d_v": d_v == 0,
    }
    return {name: FACTORS[name] * row.masked_fill(blind[name], 0.0) for name, row in rows.items()}
