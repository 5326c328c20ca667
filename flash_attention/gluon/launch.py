"""Checks a call, picks a configuration, launches the kernel."""

from __future__ import annotations

import torch

from ..triton_kit.calls import Problem, check_call
from ..triton_kit.versions import require_triton
from .config import HEAD_DIMS, GluonForwardConfig, default_config, problems

_HOPPER = (9, 0)


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    ping_pong: bool,
    causal: bool = False,
    softmax_scale: float | None = None,
    config: GluonForwardConfig | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """softmax(softmax_scale q k^T) v by the warp-specialised WS (`ping_pong` False) or WS PP.

    q and out are (batch, seq_q, heads, d), k and v (batch, seq_k, kv heads, d), all fp16 or all
    bf16, d 64 or 128, on a Hopper GPU; the last dimension contiguous, other strides multiples of 8.
    `causal`: query i sees the keys j <= i + seq_k - seq_q; a row that sees none is 0. `config`
    None takes the default one (best_config finds a better one).

    Raises TypeError or ValueError before the launch for an argument that is not as said,
    TritonVersionError for a missing or other triton.
    """
    problem, out = check_call(q, k, v, out, causal, softmax_scale, HEAD_DIMS)
    config = check_config(config, ping_pong, problem.d_head)
    require_triton()
    check_device(q.device)
    if problem.seqlen_k == 0:  # TMA has no empty tensors
        return out.zero_()
    launch(config, problem, ping_pong, q, k, v, out)
    return out


def check_config(
    config: GluonForwardConfig | None, ping_pong: bool, d_head: int
) -> GluonForwardConfig:
    """The configuration to use. Raises TypeError or ValueError for one that cannot be built."""
    if not isinstance(ping_pong, bool):
        raise TypeError(f"ping_pong is a {type(ping_pong).__name__}: expected True or False")
    if config is None:
        return default_config(ping_pong, d_head)
    if not isinstance(config, GluonForwardConfig):
        raise TypeError(f"config is a {type(config).__name__}: expected a GluonForwardConfig")
    if reasons := problems(config, d_head, ping_pong):
        raise ValueError(f"{config} cannot be built: {'; '.join(reasons)}")
    return config


def launch(
    config: GluonForwardConfig,
    problem: Problem,
    ping_pong: bool,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Puts the kernel on the current stream of q's device; arguments are checked."""
    from .descriptors import kernel_arguments
    from .kernel import attention

    arguments, constants, tiles = kernel_arguments(config, problem, ping_pong, q, k, v, out)
    if config.PERSISTENT:
        properties = torch.cuda.get_device_properties(q.device)
        tiles = min(tiles, properties.multi_processor_count)
    with torch.cuda.device(q.device):
        attention[(tiles,)](*arguments, **constants)


def check_device(device: torch.device) -> None:
    """Raises ValueError for a GPU that is no Hopper."""
    found = torch.cuda.get_device_capability(device)
    if found != _HOPPER:
        raise ValueError(
            f"{torch.cuda.get_device_name(device)} has compute capability {found[0]}.{found[1]}: "
            "the Gluon kernels need 9.0 (Hopper); flash_attention.triton runs on any GPU"
        )
