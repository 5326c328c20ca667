"""Right or wrong, by the row rule, for the modes that run kernels in this process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import compare

if TYPE_CHECKING:
    import torch


def has_gpu(mode: str) -> bool:
    """False after saying so: the caller has no data."""
    import torch

    if torch.cuda.is_available():
        return True
    print(
        f"no data: --mode {mode} runs kernels, and torch sees no CUDA device (create_scripts needs "
        "none)",
        file=sys.stderr,
    )
    return False


def problem_with(
    output: torch.Tensor, tensors: Sequence[torch.Tensor], causal: bool, heads: int
) -> str:
    """What is wrong with an output of (batch, seq, heads, d), or an empty string. Compared are the
    first and the last entry of the batch, of each the first and the last `heads`, where the
    tensors are; the rest must be finite."""
    entries = sorted({0, output.shape[0] - 1})
    n_heads = output.shape[2]
    chosen = sorted({*range(min(heads, n_heads)), *range(max(0, n_heads - heads), n_heads)})
    q, k, v, o = (x[entries][:, :, chosen] for x in (*tensors, output))
    outcome = compare(o, attention_reference(q, k, v, causal=causal)[0])
    if not outcome.passed:
        return outcome.describe()
    return "" if bool(output.isfinite().all()) else "NaN or infinity in what was not compared"
