"""`flash_attn_func`: attention as the flash-attn package calls it, with a kernel of our choice."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from . import autograd
from .attention import attend, attend_for_gradients
from .autocast import cast
from .checks.arguments import check_operands
from .checks.eager import is_watched, is_wrapped
from .checks.kinds import check_dense, check_switch, require_tensor
from .checks.scale import with_positive_scale
from .plain_calls import plain_call
from .recording import is_recorded
from .serving import dense
from .serving.options import Window
from .torch_op import flops, sharding
from .torch_op.definition import fwd

_NO_WINDOW = (-1, -1)
_PYTORCH = "torch.nn.functional.scaled_dot_product_attention"


def _find_short_way(q: Any, *others: Any) -> Any:
    """Looks for it at the first call on a GPU: what has none does without the extension."""
    global _short_way
    if getattr(q, "is_cuda", False) is not True:
        return None
    _short_way = plain_call()
    return _short_way(q, *others)


# As `plain_call`.
_short_way: Callable[..., Any] = _find_short_way

# The defaults of dropout_p and softcap are ints: torch.compile(dynamic=True) would first take a
# float for one that changes, and then compile once more.
Result = torch.Tensor | tuple[torch.Tensor, torch.Tensor, None]


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _NO_WINDOW,
    softcap: float = 0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    s_aux: torch.Tensor | None = None,
) -> Result:
    """softmax(scale * q k^T) v with the arguments and results of flash-attn 2.

    Args:
        q: (batch, seqlen_q, heads, d_head), fp16 or bf16, on a CUDA device, or on the CPU, where
            the emulator runs it. d_head is 1 to 256; those that no kernel reads are filled up with
            zeros by copies. Any strides: a tensor whose last dimension is not contiguous,
            whose strides are not multiples of 8 elements or whose address is not one of 16 bytes
            is copied first.
        k, v: (batch, seqlen_k, kv_heads, d_head), of v d_head or less; query head h reads KV head
            h // (heads // kv_heads).
        softmax_scale: any finite number, defaults to d_head ** -0.5. With 0 a row's output is the
            mean of the v it sees; for a negative one q is copied.
        causal: query i sees keys j <= i + seqlen_k - seqlen_q: the last sees all.
        window_size: (left, right): query i, which stands at key a = i + seqlen_k - seqlen_q, sees
            keys a - left to a + right alone; negative or None: no limit.
        softcap: scores become softcap * tanh(score / softcap); 0: they stay.
        s_aux: sinks (heads): each row's denominator has a term exp(s_aux of its head) more.
        dropout_p, alibi_slopes: only their defaults are supported.
        deterministic: every gradient is bitwise the same in every run. Else that of q may differ in
            its last bits: on compute capability 9.0 kernels add it up in any order, for head
            dimensions 64, 96 and 128 and more than 2,048 keys (4,096 if causal, or at 64). True as
            well where torch.use_deterministic_algorithms is.
        return_attn_probs: returns (out, softmax_lse, None), as flash-attn does without dropout.

    Returns:
        out, shaped like q, with heads as wide as those of v; or (out, softmax_lse, None) with
        softmax_lse (batch, heads, seqlen_q) in fp32, the natural logarithm of the sum of
        exp(scale * q k^T). A query that sees no key has output 0 and softmax_lse -inf.

        The kernel is queued on the current stream of q's device; nothing waits. Which kernel it is
        was decided when a call of this kind came first: a tuning table that changes later is for
        later processes.

        torch.compile, torch.export, torch.func and others see the call as the operation
        `flash_attention::fwd`; under torch.autocast fp32 is cast first.

    Raises:
        TypeError, ValueError: an argument that is not supported; the message names it.
        NotImplementedError: the gradients are differentiated again (raised by that).
        What `forward` raises otherwise.
    """
    if (
        dropout_p
        or softcap
        or alibi_slopes is not None
        or window_size != _NO_WINDOW
        or s_aux is not None
    ):
        _check_defaults(dropout_p, alibi_slopes)
        without_window = dense.as_causal(window_size, causal, q, k)
        if softcap or s_aux is not None or without_window is None:
            served: Result = dense.attend(
                q, k, v, softmax_scale, causal, window_size, softcap, s_aux,
                with_probs=return_attn_probs, deterministic=deterministic,
            )  # fmt: skip
            return served
        causal = without_window
    if not is_dynamo_compiling():
        launched: Result | None = _short_way(
            q, k, v, softmax_scale, causal, deterministic, return_attn_probs
        )
        if launched is not None:
            return launched
    if torch.compiler.is_compiling() or is_watched() or is_wrapped(q, k, v):
        return _recorded(q, k, v, softmax_scale, causal, deterministic, return_attn_probs)
    if torch._C._is_any_autocast_enabled():
        q, k, v = cast(q, k, v)
    if softmax_scale is not None:
        q, softmax_scale = with_positive_scale(q, softmax_scale)
    if is_recorded(q, k, v):
        if forward_ad._current_level >= 0:
            with torch.no_grad():
                check_operands(q, k, v, softmax_scale, causal)
        deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
        o, lse = autograd.attention(
            partial(attend_for_gradients, bool(deterministic)), q, k, v, softmax_scale, causal,
            deterministic, with_lse=return_attn_probs,
        )  # fmt: skip
    else:
        o, lse = attend(q, k, v, softmax_scale, causal, with_lse=return_attn_probs)
    return o if lse is None else (o, lse, None)


def _recorded(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None,
    causal: bool,
    deterministic: bool,
    return_attn_probs: bool,
) -> Result:
    """As an operation of PyTorch, which whatever records, transforms or watches sees."""
    if not torch.compiler.is_compiling():
        sharding.register_if_used()
        flops.register_if_used()
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        require_tensor(name, tensor)
        check_dense(name, tensor)
    check_switch("causal", causal)
    o, lse = fwd(q, k, v, softmax_scale, causal, deterministic)
    return (o, lse, None) if return_attn_probs else o


def _check_defaults(dropout_p: float, alibi_slopes: Any) -> None:
    if dropout_p:
        raise ValueError(
            f"dropout_p is {dropout_p}: only 0.0 is supported; {_PYTORCH} has it as dropout_p"
        )
    if alibi_slopes is not None:
        raise ValueError(
            "alibi_slopes is given: only None is supported; pass the biases as attn_mask to "
            f"{_PYTORCH}"
        )
