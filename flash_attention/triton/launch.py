"""The functions for users: the kernel on CUDA tensors, and its fastest configuration."""

import torch

from ..triton_kit.tuning import Tuned
from .config import TritonForwardConfig
from .op import TritonAttention


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False,
    softmax_scale: float | None = None, config: TritonForwardConfig | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """softmax(softmax_scale q k^T) v by the plain Triton kernel, on any CUDA GPU.

    q and out are (batch, seq_q, heads, d), k and v (batch, seq_k, kv heads, d), all fp16 or all
    bf16, d 32, 64, 128 or 256; the last dimension contiguous, other strides multiples of 8.
    `causal`: query i sees the keys j <= i + seq_k - seq_q; a row that sees none is 0. `config`
    None takes the default one (best_config finds a better one).

    Raises TypeError or ValueError before the launch for an argument that is not as said,
    TritonVersionError for a missing or other triton.
    """
    return TritonAttention().forward(q, k, v, out, causal, softmax_scale, config)


def best_config(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False
) -> Tuned[TritonForwardConfig]:
    """The fastest configuration for tensors like these (see forward), and its milliseconds.

    Measured at the first call, then read from the cache. A configuration that does not run is left
    out, with a warning. Raises as forward does, and TuningFailedError if none runs.
    """
    return TritonAttention().best_config(q, k, v, causal, True)
