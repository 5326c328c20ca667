"""Attention as its definition says, in fp32 or fp64: what every kernel is compared with.

Layout: q (batch, seq_q, heads, d), k and v (batch, seq_k, kv heads, d). Works on any device. It
is written for being right: no online softmax, no blocks, nothing in common with the kernels.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from ..base.lazy import torch

# Scores in memory at a time; the exponentials need as much again.
MAX_SCORE_BYTES = 256 * 1024**2


def attention_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None = None,
    *,
    fp64: bool = False,
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(scale * q k^T) v and its log-sum-exp, computed and returned in fp32 (or fp64).

    `causal`: query i sees keys j <= i + seq_k - seq_q only. A row that sees no key is 0, and its
    log-sum-exp -inf.

    `o` is (batch, seq_q, heads, d), `lse` is (batch, heads, seq_q) in natural logarithm. `scale`
    defaults to 1/sqrt(d). Query head h reads KV head h // (heads / kv heads).
    """
    check_shapes(q, k, v)
    dtype = torch.float64 if fp64 else torch.float32
    batch, seqlen_q, n_heads, d_head = q.shape
    o = torch.empty(q.shape, dtype=dtype, device=q.device)
    lse = torch.empty((batch, n_heads, seqlen_q), dtype=dtype, device=q.device)
    group = n_heads // k.shape[2]
    scale = d_head**-0.5 if scale is None else scale
    with full_precision(q.device.type):
        for b, head, rows in chunks(batch, n_heads, seqlen_q, k.shape[1], o.element_size()):
            scores = q[b, rows, head].to(dtype) @ k[b, :, head // group].to(dtype).T
            scores *= scale
            if causal:
                scores.masked_fill_(hidden_keys(rows, seqlen_q, k.shape[1], q.device), -math.inf)
            lse[b, head, rows] = torch.logsumexp(scores, dim=-1)
            weights = torch.softmax(scores, dim=-1)
            o[b, rows, head] = weights @ v[b, :, head // group].to(dtype)
            if causal:  # a softmax over nothing but -inf is NaN
                o[b, rows, head][: max(0, seqlen_q - k.shape[1] - rows.start)] = 0.0
    return o, lse


def hidden_keys(rows: slice, seqlen_q: int, seqlen_k: int, device: torch.device) -> torch.Tensor:
    """True where a causal mask hides a key from a query row."""
    query = torch.arange(rows.start, rows.stop, device=device)[:, None]
    key = torch.arange(seqlen_k, device=device)
    return key > query + (seqlen_k - seqlen_q)


def check_shapes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """(batch, seq, heads, d) each, k and v alike, query heads a multiple of KV heads."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == 4:
        raise ValueError(f"expected four dimensions (batch, seq, heads, d), got {shapes}")
    if k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"batch and d must agree, and k and v in everything, got {shapes}")
    if k.shape[2] == 0 or q.shape[2] % k.shape[2]:
        raise ValueError(f"query heads must be a multiple of KV heads, got {shapes}")


def chunks(
    batch: int, n_heads: int, seqlen_q: int, seqlen_k: int, element_bytes: int
) -> Iterator[tuple[int, int, slice]]:
    """(batch, head, rows) with at most MAX_SCORE_BYTES of scores each."""
    n_rows = max(1, MAX_SCORE_BYTES // (max(1, seqlen_k) * element_bytes))
    for b in range(batch):
        for head in range(n_heads):
            for first in range(0, seqlen_q, n_rows):
                yield b, head, slice(first, min(first + n_rows, seqlen_q))


@contextlib.contextmanager
def full_precision(device_type: str) -> Iterator[None]:
    """No TF32, no bf16 shortcuts in fp32 matmuls, no autocast, no autograd."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad(), torch.autocast(device_type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
