"""Right or wrong, by the row rule, for the modes that run kernels in this process."""

from __future__ import annotations

import sys

from flash_helpers.base.lazy import torch
from flash_helpers.check.judge import Judge, Qkv


def has_gpu(mode: str) -> bool:
    """False after saying so: the caller has no data."""
    if torch.cuda.is_available():
        return True
    print(
        f"no data: --mode {mode} runs kernels, and torch sees no CUDA device (create_scripts needs "
        "none)",
        file=sys.stderr,
    )
    return False


def judge_of(tensors: Qkv, causal: bool, heads: int) -> Judge:
    """Compares the first and the last entry of the batch, of each the first and the last `heads`,
    where the tensors are; the rest must be finite."""
    batch, _, n_heads, _ = tensors[0].shape
    chosen = sorted({*range(min(heads, n_heads)), *range(max(0, n_heads - heads), n_heads)})
    return Judge(tensors, causal=causal, entries=sorted({0, batch - 1}), heads=chosen)
