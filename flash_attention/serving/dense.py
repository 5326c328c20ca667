"""`flash_attn_func` with a window, a soft cap or sinks: a batch of equal lengths, served."""

from typing import Any

import torch

from ..autocast import cast
from ..checks.arguments import check_call, check_lengths
from ..checks.eager import require_eager
from ..checks.readable import readable
from ..checks.scale import with_positive_scale
from ..recording import is_recorded
from . import keys
from .gradients import Rule
from .launch import Call
from .options import Options, Window, make_options, window
from .recorded import attention
from .result import answer, run
from .tensors import check_operand, filled_up, sinks_of


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None,
    causal: bool,
    window_size: Window,
    softcap: float,
    s_aux: torch.Tensor | None,
    *,
    with_probs: bool,
    deterministic: bool = False,
) -> Any:
    """As `flash_attn_func` returns it. Raises TypeError, ValueError or NotImplementedError, also
    where anything but autograd records the call."""
    if torch.compiler.is_compiling():
        raise NotImplementedError(
            "torch.compile cannot record window_size, softcap and s_aux of flash_attn_func yet: "
            "call it outside of what is compiled"
        )
    require_eager()
    if torch._C._is_any_autocast_enabled():
        q, k, v = cast(q, k, v)
    q, softmax_scale = with_positive_scale(q, softmax_scale)
    check_call(q, k, v, softmax_scale, causal)
    if is_recorded(q, k, v, s_aux):
        options = make_options(q.shape[3], softmax_scale, causal, window_size, softcap, 0)

        def forward(q: Any, k: Any, v: Any, sinks: Any) -> Any:
            o, lse, _ = attend(q, k, v, softmax_scale, causal, window_size, softcap, sinks,
                               with_probs=True)  # fmt: skip
            return o, lse

        same_bits = deterministic or torch.are_deterministic_algorithms_enabled()
        o, lse = attention(forward, q, k, v, s_aux, Rule(options, {}, same_bits))
        return answer(o, lse, with_lse=False, with_probs=with_probs)
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_operand(name, x, q, (4,))
    options = make_options(q.shape[3], softmax_scale, causal, window_size, softcap, 0)
    found = served(q, k, v, options, sinks_of({"s_aux": s_aux}, q), with_lse=with_probs)
    return answer(*found, with_lse=False, with_probs=with_probs)


def served(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    options: Options,
    sinks: dict[str, torch.Tensor],
    *,
    o: torch.Tensor | None = None,
    with_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(o, lse) of checked operands, lse None without `with_lse`; o by default contiguous."""
    seqlen_k, d_v = k.shape[1], v.shape[3]
    check_lengths(q.shape[1], seqlen_k)
    q, k, v = map(filled_up, (q, k, v))
    if k.numel():
        k, v = readable(k), readable(v)
    found = keys.cached(q, ("k", "v"), k, v, q.shape[0], used=("cache_seqlens", None))
    call = Call({"q": q, **found.tensors, **sinks}, options, q.shape[0], seqlen_k)
    result: Any = run(call, o, d_v, with_lse=with_lse)
    return result if with_lse else (result, None)


def as_causal(window_size: Window, causal: bool, q: object, k: object) -> bool | None:
    """What `causal` is of a call with the same result and without a window; None: there is none.
    Tensors that are none are left for the checks to refuse. Raises TypeError."""
    left, right = window(window_size)
    seqlen_q, seqlen_k = (
        x.shape[1] if isinstance(x, torch.Tensor) and x.dim() == 4 else 0 for x in (q, k)
    )
    if left < seqlen_k - 1:
        return None
    if causal or right >= seqlen_q - 1:
        return causal
    return True if right == 0 else None
