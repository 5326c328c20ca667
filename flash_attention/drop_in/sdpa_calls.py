"""Plain calls of scaled_dot_product_attention, which go past PyTorch's dispatcher: they are offered
to the extension before PyTorch's own code runs.

They are those that PyTorch would compute with FlashAttention, and that nothing but autograd
records, transforms or watches.
"""

from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend

from .. import autograd
from ..attention import CHOSEN, RECORDED, attend, attend_for_gradients
from ..interface import launch_cache
from ..library import load_library
from ..plain_calls import lse_prototype
from ..surroundings import new_tensors, surroundings
from .sdpa_kernels import is_served

# What sees PyTorch's function, beside what sees an operation. The functions return false where
# nothing does. Autocast also casts from one type of 16 bits to the other.
WATCHERS = (
    torch._C._len_torch_function_stack,
    torch._C._is_any_autocast_enabled,
    torch._C._autograd._profiler_enabled,
)


def detour() -> Any:
    """Until its `end`. What PyTorch's function is does not change, as subclasses of tensors, modes
    and compilers look it up and compare with it; so other names of it have this too."""
    library = load_library()
    calls = library.SdpaCalls(
        launch_cache(),
        surroundings(*WATCHERS),
        new_tensors(),
        plain=CHOSEN,
        recorded=RECORDED[False],
        recorded_deterministic=RECORDED[True],
        are_deterministic=torch._C._get_deterministic_algorithms,
        lse_prototype=lse_prototype,
        record=autograd.recorder(True),
        backend_of=torch._fused_sdp_choice,
        flash=SDPBackend.FLASH_ATTENTION.value,
        serve=serve,
    )
    return library.Detour(torch._C._nn.scaled_dot_product_attention, calls.attend)


def serve(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None,
    causal: bool,
    recorded: bool,
) -> torch.Tensor | None:
    """The output of a plain call, (batch, heads, seq, d) as its tensors are, its gradients recorded
    or not; None where it is PyTorch's to compute, or to refuse. Calls like it are remembered."""
    if k.shape != v.shape or any(x._is_zerotensor() for x in (q, k, v)) or not is_served(q, k, v):
        return None
    if recorded and not is_served(q, k, v, gradients=True):
        return None
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if recorded:
        exact = torch.are_deterministic_algorithms_enabled()
        forward = partial(attend_for_gradients, exact)
        o, _ = autograd.attention(forward, q, k, v, scale, causal, exact, with_lse=False)
    else:
        o, _ = attend(q, k, v, scale, causal, with_lse=False)
    return o.transpose(1, 2)
