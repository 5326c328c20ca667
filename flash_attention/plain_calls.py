"""The short ways of the forward pass: calls like one that was remembered go to the extension at
once."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from .attention import CHOSEN, RECORDED
from .autograd import recorder
from .interface import launch_cache
from .library import load_library
from .memory import without_memory
from .surroundings import new_tensors, nothing_done, surroundings


@cache
def plain_call() -> Callable[..., Any]:
    """(q, k, v, softmax_scale, causal, deterministic, with_lse) -> what `flash_attn_func` returns,
    with the kernel queued and the gradients recorded; None where nothing was done, as something
    has to see the call or none like it is remembered."""
    calls = _calls()
    return nothing_done if calls is None else calls.attend


@cache
def seen_call() -> Callable[..., Any]:
    """(q, k, v, softmax_scale, causal, heads_first) -> (o, lse) of a call that PyTorch has seen as
    an operation; None as above. With `heads_first` tensors are (batch, heads, seq, d_head)."""
    calls = _calls()
    return nothing_done if calls is None else calls.compute


@cache
def _calls() -> Any:
    known = launch_cache()
    if known is None:
        return None
    return load_library().PlainCalls(
        known,
        surroundings(),
        new_tensors(),
        plain=CHOSEN,
        recorded=RECORDED[False],
        recorded_deterministic=RECORDED[True],
        are_deterministic=torch._C._get_deterministic_algorithms,
        lse_prototype=lse_prototype,
        record=recorder(False),
    )


def lse_prototype(config: None, q: torch.Tensor, sizes: tuple[int, int, int, int]) -> torch.Tensor:
    """For `empty_like` to make softmax_lse; `sizes` are q's: (batch, seq, heads, d_head)."""
    batch, seqlen_q, n_heads, _ = sizes
    return without_memory((batch, n_heads, seqlen_q), q.device)
