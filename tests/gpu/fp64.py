"""Attention in fp64 for problems that are too large for the reference: some rows of some heads, or
many small heads at once. Nothing in common with the kernels: no blocks of queries, two passes."""

from __future__ import annotations

import torch

KEYS_AT_A_TIME = 1 << 20


def truncation(n_keys: int) -> float:
    """What a row's relative error may come to beyond the row rule because tensor cores truncate
    where they add to fp32 accumulators: of every 16 keys up to one last place, 2^-23 of the sum so
    far, which is half of the final one on average. Every kernel that accumulates in them has it."""
    return n_keys / 16 * 2**-24


def some_rows(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: int, head: int, rows: list[int],
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Output (rows, d_head) and log-sum-exp (rows,) of some rows of one head: q (batch, seq, heads,
    d_head), k and v with fewer heads. Keys are taken a million at a time."""
    n_keys, shift = k.shape[1], k.shape[1] - q.shape[1]
    group = q.shape[2] // k.shape[2]
    queries = torch.stack([q[batch, row, head] for row in rows]).double() * q.shape[3] ** -0.5
    last = torch.tensor(rows, device=q.device)[:, None] + shift if causal else None
    largest = torch.full((len(rows), 1), -torch.inf, device=q.device, dtype=torch.float64)

    def scores(first: int) -> torch.Tensor:
        keys = k[batch, first : first + KEYS_AT_A_TIME, head // group].double()
        found: torch.Tensor = queries @ keys.T
        if last is not None:
            position = torch.arange(first, first + len(keys), device=q.device)
            found.masked_fill_(position > last, -torch.inf)
        return found

    starts = range(0, n_keys, KEYS_AT_A_TIME)
    for first in starts:
        largest = torch.maximum(largest, scores(first).amax(dim=1, keepdim=True))
    largest.masked_fill_(largest.isinf(), 0.0)  # rows that see nothing: exp(-inf - 0) is 0
    total = torch.zeros_like(largest)
    output = torch.zeros(len(rows), q.shape[3], device=q.device, dtype=torch.float64)
    for first in starts:
        weights = torch.exp(scores(first) - largest)
        total += weights.sum(dim=1, keepdim=True)
        output += weights @ v[batch, first : first + KEYS_AT_A_TIME, head // group].double()
    lse = (total.log() + largest)[:, 0]
    return output / torch.where(total == 0, 1, total), lse


def many_heads(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """All rows of many short heads: q, k, v (batch, seq, heads, d_head), as many heads each."""
    queries, keys, values = (x.transpose(1, 2).double() for x in (q, k, v))
    scores = queries @ keys.transpose(2, 3) * q.shape[3] ** -0.5
    if causal:
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device)
        scores.masked_fill_(~seen.tril(k.shape[1] - q.shape[1]), -torch.inf)
    output = torch.softmax(scores, dim=-1).nan_to_num(0.0) @ values
    return output.transpose(1, 2), torch.logsumexp(scores, dim=-1)
