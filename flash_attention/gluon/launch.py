"""The functions for users: the kernel on CUDA tensors, and its fastest configuration."""

import torch

from ..triton_kit.tuning import Tuned
from .config import GluonForwardConfig
from .op import GluonAttention


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, ping_pong: bool, causal: bool = False,
    softmax_scale: float | None = None, config: GluonForwardConfig | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """softmax(softmax_scale q k^T) v by the warp-specialised WS (`ping_pong` False) or WS PP.

    q and out are (batch, seq_q, heads, d), k and v (batch, seq_k, kv heads, d), all fp16 or all
    bf16, d 64 or 128, on a Hopper GPU; the last dimension contiguous, other strides multiples of 8.
    `causal`: query i sees the keys j <= i + seq_k - seq_q; a row that sees none is 0. `config`
    None takes the default one (best_config finds a better one).

    Raises TypeError or ValueError before the launch for an argument that is not as said,
    TritonVersionError for a missing or other triton.
    """
    return GluonAttention(ping_pong).forward(q, k, v, out, causal, softmax_scale, config)


def best_config(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, ping_pong: bool, causal: bool = False,
    measure_now: bool = True,
) -> Tuned[GluonForwardConfig]:  # fmt: skip
    """The fastest configuration for tensors like these (see forward), and its milliseconds.

    Measured at the first call, seconds to a minute for the compiler, then read from the cache. A
    configuration that does not run is left out, with a warning. Raises as forward does, and
    TuningFailedError if none runs; with `measure_now` False (nothing is launched then)
    NotTunedError if the cache has none.
    """
    return GluonAttention(ping_pong).best_config(q, k, v, causal, measure_now)
