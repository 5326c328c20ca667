"""Checks a call, picks a configuration, launches the kernel."""

from __future__ import annotations

from typing import Any

import torch

from ..triton_kit.calls import (
    COMPILE_OPTIONS,
    LOG2_E,
    Problem,
    check_call,
    heads_abreast,
)
from ..triton_kit.versions import require_triton
from .config import HEAD_DIMS, TritonForwardConfig, default_config, problems


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    config: TritonForwardConfig | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """softmax(softmax_scale q k^T) v by the plain Triton kernel, on any CUDA GPU.

    q and out are (batch, seq_q, heads, d), k and v (batch, seq_k, kv heads, d), all fp16 or all
    bf16, d 32, 64, 128 or 256; the last dimension contiguous, other strides multiples of 8.
    `causal`: query i sees the keys j <= i + seq_k - seq_q; a row that sees none is 0. `config`
    None takes the default one (best_config finds a better one).

    Raises TypeError or ValueError before the launch for an argument that is not as said,
    TritonVersionError for a missing or other triton.
    """
    problem, out = check_call(q, k, v, out, causal, softmax_scale, HEAD_DIMS)
    config = check_config(config, problem.d_head)
    require_triton()
    launch(config, problem, q, k, v, out)
    return out


def check_config(config: TritonForwardConfig | None, d_head: int) -> TritonForwardConfig:
    """The configuration to use. Raises TypeError or ValueError for one that cannot be built."""
    if config is None:
        return default_config(d_head)
    if not isinstance(config, TritonForwardConfig):
        raise TypeError(f"config is a {type(config).__name__}: expected a TritonForwardConfig")
    if reasons := problems(config, d_head):
        raise ValueError(f"{config} cannot be built: {'; '.join(reasons)}")
    return config


def launch(
    config: TritonForwardConfig,
    problem: Problem,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Puts the kernel on the current stream of q's device; arguments are checked."""
    from .kernel import attention

    arguments, constants, tiles = kernel_arguments(config, problem, q, k, v, out)
    with torch.cuda.device(q.device):
        attention[(tiles,)](*arguments, **constants)


def kernel_arguments(
    config: TritonForwardConfig, problem: Problem, q: Any, k: Any, v: Any, o: Any
) -> tuple[list[Any], dict[str, Any], int]:
    """(arguments, compile-time arguments, programs) of one launch. Tensors are torch's, or anything
    with strides, a dtype and an address."""
    strides = [stride for tensor in (q, k, v, o) for stride in tensor.stride()[:3]]
    arguments = [
        q, k, v, o, *strides, problem.seqlen_q, problem.seqlen_k, problem.n_heads,
        problem.n_heads // problem.n_heads_kv, -(-problem.seqlen_q // config.BLOCK_M),
        problem.batch * problem.n_heads, heads_abreast(problem), problem.softmax_scale * LOG2_E,
    ]  # fmt: skip
    constants = {
        **config.as_dict(), "D": problem.d_head, "CAUSAL": problem.causal, **COMPILE_OPTIONS,
    }  # fmt: skip
    return arguments, constants, problem.tiles(config.BLOCK_M)
