"""The short way of `flash_attn_func`: a call like one that was remembered, and that nothing has to
see, goes to the extension at once."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.fx.experimental import proxy_tensor

from .attention import CHOSEN, lse_like
from .checks.eager import QUIET_FUNCTIONS
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
        quiet=[*QUIET_FUNCTIONS, torch._C._is_any_autocast_enabled],
        settings=[
            (vars(proxy_tensor), "_CURRENT_MAKE_FX_TRACER", None),
            (vars(forward_ad), "_current_level", -1),
        ],
        is_grad_enabled=torch.is_grad_enabled,
        empty_like=torch.empty_like,
        lse_like=lse_like,
    )
    attend: Callable[..., Any] = calls.attend
    return attend


def _nothing(*_: object) -> None:
    """Every call is checked in full."""
