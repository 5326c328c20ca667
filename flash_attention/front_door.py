"""`flash_attn_func`: attention as the flash-attn package calls it, with a kernel of our choice."""

from typing import Any

import torch
from torch.autograd import forward_ad

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.problem import AttentionProblem

from . import autograd, dispatch
from .checks.arguments import check_operands
from .checks.eager import require_eager
from .checks.readable import readable
from .checks.scale import with_positive_scale
from .interface import launch_again, launch_checked, output_like

# Stands for "the kernel of our choice" where the cache of checked calls expects a configuration.
CHOSEN = object()
_NO_WINDOW = (-1, -1)

Result = torch.Tensor | tuple[torch.Tensor, torch.Tensor, None]


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = _NO_WINDOW,
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """softmax(scale * q k^T) v with the arguments and results of flash-attn 2.

    Args:
        q: (batch, seqlen_q, heads, d_head), fp16 or bf16, on a CUDA device, or on the CPU, where
            the emulator runs it. Any strides: a tensor whose last dimension is not contiguous,
            whose strides are not multiples of 8 elements or whose address is not one of 16 bytes
            is copied first.
        k, v: (batch, seqlen_k, kv_heads, d_head); query head h reads KV head
            h // (heads // kv_heads).
        softmax_scale: any finite number, defaults to d_head ** -0.5. With 0 a row's output is the
            mean of the v it sees; for a negative one q is copied.
        causal: query i sees keys j <= i + seqlen_k - seqlen_q: the last sees all.
        dropout_p, window_size, softcap, alibi_slopes: only their defaults are supported.
        deterministic: every gradient is bitwise the same in every run. Else that of q may differ in
            its last bits: on compute capability 9.0 faster kernels add it up in any order, for head
            dimensions 64 and 128. True as well where torch.use_deterministic_algorithms is.
        return_attn_probs: returns (out, softmax_lse, None), as flash-attn does without dropout.

    Returns:
        out, shaped like q; or (out, softmax_lse, None) with softmax_lse (batch, heads, seqlen_q) in
        fp32, the natural logarithm of the sum of exp(scale * q k^T). A query that sees no key has
        output 0 and softmax_lse -inf.

        The kernel is queued on the current stream of q's device; nothing waits. Which kernel it is
        was decided when a call of this kind came first: a tuning table that changes later is for
        later processes.

    Raises:
        TypeError, ValueError: an argument that is not supported; the message names it.
        NotImplementedError: the gradients are differentiated again (raised by that).
        What `forward` raises otherwise.
    """
    if dropout_p or softcap or alibi_slopes is not None or window_size != _NO_WINDOW:
        _check_defaults(dropout_p, window_size, softcap, alibi_slopes)
    require_eager()
    if softmax_scale is not None:
        q, softmax_scale = with_positive_scale(q, softmax_scale)
    if autograd.is_recorded(q, k, v):
        _check_recordable(q, k, v, softmax_scale, causal)
        found = autograd.attention(_with_lse, q, k, v, softmax_scale, causal, deterministic)
        return (*found, None) if return_attn_probs else found[0]
    o = output_like(q)
    lse = _lse_like(q) if return_attn_probs else None
    if not launch_again(CHOSEN, q, k, v, o, lse, softmax_scale, causal):
        o = _first_call(q, k, v, o, lse, softmax_scale, causal)
    return o if lse is None else (o, lse, None)


def _with_lse(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, softmax_lse); PyTorch does not record this."""
    o, lse = output_like(q), _lse_like(q)
    if not launch_again(CHOSEN, q, k, v, o, lse, softmax_scale, causal):
        o = _first_call(q, k, v, o, lse, softmax_scale, causal)
    return o, lse


def _first_call(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor | None,
    softmax_scale: float | None,
    causal: bool,
) -> torch.Tensor:
    """Chooses the kernel, copies what it cannot read, and launches. Returns the output."""
    check_operands(q, k, v, softmax_scale, causal)
    if o.numel() == 0:
        return o
    batch, seqlen_q, n_heads, d_head = q.shape
    problem = AttentionProblem(
        DType.from_torch_dtype(q.dtype), batch, seqlen_q, k.shape[1], n_heads, k.shape[2], d_head,
        causal=causal,
    )  # fmt: skip
    config = dispatch.choose(problem, q.device)
    readable_q, readable_k, readable_v = map(readable, (q, k, v))
    if readable_q is not q:
        o = torch.empty_like(readable_q)
    launch_checked(
        config, readable_q, readable_k, readable_v, o, lse, softmax_scale, causal, key=CHOSEN
    )
    return o


def _lse_like(q: Any) -> torch.Tensor:
    if not isinstance(q, torch.Tensor) or q.dim() != 4:
        return torch.empty(0)  # q is refused before this is used
    batch, seqlen_q, n_heads, _ = q.shape
    return torch.empty((batch, n_heads, seqlen_q), dtype=torch.float32, device=q.device)


def _check_recordable(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None, causal: bool
) -> None:
    """Refuses tensors of a transformation before PyTorch does, in words of our own."""
    functorch = torch._C._functorch
    if functorch.peek_interpreter_stack() is None and forward_ad._current_level < 0:
        return
    with torch.no_grad():
        check_operands(q, k, v, softmax_scale, causal)


def _check_defaults(
    dropout_p: float, window_size: tuple[int, int], softcap: float, alibi_slopes: Any
) -> None:
    given = tuple(window_size) if isinstance(window_size, list) else window_size  # both are taken
    for name, value, default in (
        ("dropout_p", dropout_p, 0.0),
        ("window_size", given, _NO_WINDOW),
        ("softcap", softcap, 0.0),
    ):
        if value != default:
            raise ValueError(f"{name} is {value}: only {default} is supported")
    if alibi_slopes is not None:
        raise ValueError("alibi_slopes is given: only None is supported")
