"""The short way of `flash_attn_func`: a call like one that was remembered, and that nothing has to
see, goes to the extension at once."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from .attention import CHOSEN, lse_like
from .checks.eager import QUIET_FUNCTIONS, QUIET_VARIABLES
from .interface import launch_cache
from .library import load_library


@cache
def plain_call() -> Callable[..., Any]:
    """(q, k, v, softmax_scale, causal, with_lse) -> what `flash_attn_func` returns, with the kernel
    queued; None where nothing was done."""
    known = launch_cache()
    if known is None:
        return _nothing
    calls = load_library().PlainCalls(
        known,
        CHOSEN,
        quiet=QUIET_FUNCTIONS,
        settings=[(vars(module), name, value) for module, name, value in QUIET_VARIABLES],
        is_grad_enabled=torch.is_grad_enabled,
        empty_like=torch.empty_like,
        lse_like=lse_like,
    )
    attend: Callable[..., Any] = calls.attend
    return attend


def _nothing(*_: object) -> None:
    """Every call is checked in full."""
