"""`flash_attn_varlen_func`: attention for sequences of different lengths, one after the other."""

from typing import Any

import torch

from flash_helpers.kernels.backward_args import LENGTH_FIELDS

from ..checks.eager import require_eager
from ..checks.kinds import require_tensor
from ..checks.scale import with_positive_scale
from ..recording import is_recorded
from . import keys
from .gradients import Rule
from .launch import Call
from .options import Window, check_refused, make_options, one_of
from .recorded import attention, check_without
from .result import Result, answer, run
from .short_way import Given, again
from .tensors import check_index, check_operand, filled_up, sinks_of

# cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k
_Lengths = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]
# softmax_scale, causal, window_size, softcap, num_splits
_Numbers = tuple[float | None, bool, Window, float, int]


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int | torch.Tensor | None = None,
    max_seqlen_k: int | torch.Tensor | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
    *,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    page_table: torch.Tensor | None = None,
    s_aux: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    qv: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    scheduler_metadata: Any = None,
    pack_gqa: Any = None,
    sm_margin: int = 0,
    fa_version: int | None = None,
) -> Result:
    """softmax(scale * q k^T) v of each of several sequences, with the arguments and results of
    flash-attn's function of this name, and the names of its successors as keywords.

    A sequence has sq queries and sk keys. Query i stands at key a = i + sk - sq and sees the keys
    max(leftpad, a - left) <= j < min(sk, a + right + 1). Lengths are read on the device: nothing
    waits for it, and a captured CUDA graph follows them.

    Args:
        q: (total_q, heads, d), fp16 or bf16, on a CUDA device, or on the CPU, where the emulator
            runs it; d up to 256. Copied where a kernel cannot read its strides, or d is no
            multiple of 8.
        k, v: (total_k, kv_heads, d), of v d or less; or a cache that is never copied: the pages
            (pages, page_size, kv_heads, d) of a block_table, or (batch, capacity, kv_heads, d).
            Query head h reads KV head h // (heads // kv_heads).
        cu_seqlens_q, cu_seqlens_k: int32 (batch + 1): where each sequence begins, and the last
            ends. cu_seqlens_k may be None with seqused_k or a cache.
        max_seqlen_q, max_seqlen_k: not looked at; results do not depend on them.
        softmax_scale: any finite number, defaults to d ** -0.5.
        causal: right is 0.
        window_size: (left, right); negative or None: no limit.
        softcap: scores become softcap * tanh(score / softcap); 0: they stay.
        block_table (page_table): int32 (batch, most pages): the pages of each sequence. Entries
            that no query's keys lie in are not followed.
        seqused_q, seqused_k: int32 (batch): how long sequences are, in place of what cu_seqlens
            says. Rows of q after it are not computed, and `out` keeps what it has there.
        cache_leftpad: int32 (batch): keys before it are not seen.
        s_aux (learnable_sink, sinks): (heads): each row's denominator has a term exp(s_aux) more.
        out: receives the result: (total_q, heads, d of v), allocated by default.
        num_splits: thread blocks that share a sequence's keys; 0: as many as the GPU has room for.
            With any other number a sequence's result has the same bits in every batch.
        return_attn_probs, return_softmax_lse: also return softmax_lse.
        dropout_p, alibi_slopes, qv, q_descale, k_descale, v_descale: only their defaults are
            supported.
        deterministic: every gradient has the same bits in every run, as with num_splits not 0 and
            torch.use_deterministic_algorithms(True); else that of q may differ in its last ones.
        scheduler_metadata, pack_gqa, sm_margin, fa_version: taken and ignored.

    Returns:
        out; (out, softmax_lse, None) with return_attn_probs, (out, softmax_lse) with
        return_softmax_lse. softmax_lse is (heads, total_q) in fp32. A query without a key has
        output 0 and softmax_lse -inf, or s_aux of its head.

    Raises:
        TypeError, ValueError: an argument that is not supported; the message names it.
        KernelNotBuiltError: no kernel is built, or can be compiled (a ValueError).
    """
    given: Given = (
        q, k, v, out, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, cache_leftpad, None,
        block_table, page_table, s_aux, learnable_sink, sinks, None,
        softmax_scale, causal, window_size, softcap, num_splits, False,
        3 if return_attn_probs else 1 + bool(return_softmax_lse),
        (dropout_p, alibi_slopes, qv, q_descale, k_descale, v_descale),
    )  # fmt: skip
    if (served := again(given)) is not None:
        return served
    require_eager()
    check_refused(dropout_p=dropout_p, alibi_slopes=alibi_slopes, qv=qv, q_descale=q_descale,
                  k_descale=k_descale, v_descale=v_descale)  # fmt: skip
    q, softmax_scale = with_positive_scale(q, softmax_scale)
    sink: Any = one_of({"s_aux": s_aux, "learnable_sink": learnable_sink, "sinks": sinks})
    lengths = (cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k)
    numbers = (softmax_scale, causal, window_size, softcap, num_splits)
    tables: Any = {"block_table": block_table, "page_table": page_table}
    wanted: Any = {"with_lse": return_softmax_lse, "with_probs": return_attn_probs}
    if is_recorded(q, k, v, sink):
        check_without(out=out, cache_leftpad=cache_leftpad, **tables)
        return answer(*_recorded(q, k, v, lengths, sink, numbers, deterministic), **wanted)
    call, d_v = _call(q, k, v, lengths, sink, numbers, tables, cache_leftpad)
    return run(call, out, d_v, **wanted, given=given)


def _call(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: _Lengths,
    sinks: torch.Tensor | None,
    numbers: _Numbers,
    tables: dict[str, object],
    leftpad: torch.Tensor | None,
) -> tuple[Call, int]:
    """What is launched, checked but for `out`; and the head dimension of v."""
    check_operand("q", q, q, (3,))
    options = make_options(q.shape[-1], *numbers)
    cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k = lengths
    batch = _batch_of(q, cu_seqlens_q)
    table: Any = one_of(tables)
    found = _keys(q, k, v, batch, table, cu_seqlens_k, seqused_k)
    tensors: dict[str, Any] = {
        "q": filled_up(q), "cu_seqlens_q": cu_seqlens_q, **found.tensors,
        **keys.indices(q, batch, {"seqused_q": seqused_q, "leftpad_k": leftpad}),
        **sinks_of({"s_aux": sinks}, q),
    }  # fmt: skip
    return Call(tensors, options, batch, found.max_keys, found.page_size), found.d_v


def _recorded(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: _Lengths,
    sinks: torch.Tensor | None,
    numbers: _Numbers,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(o, lse) of packed sequences, which PyTorch records."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        require_tensor(name, x)
        if x.dim() != 3:
            raise ValueError(
                f"{name} has shape {tuple(x.shape)}, and an input requires a gradient: only packed "
                "sequences, of 3 dimensions, have one"
            )
    scale, causal, window_size, softcap, num_splits = numbers
    named: dict[str, Any] = dict(zip(LENGTH_FIELDS, lengths, strict=True))
    rule = Rule(
        make_options(q.shape[-1], scale, causal, window_size, softcap, num_splits),
        {name: x for name, x in named.items() if x is not None},
        deterministic or torch.are_deterministic_algorithms_enabled(),
    )

    options: dict[str, Any] = {
        "softmax_scale": scale, "causal": causal, "window_size": window_size, "softcap": softcap,
        "num_splits": num_splits, "return_softmax_lse": True,
    }  # fmt: skip

    def forward(q: Any, k: Any, v: Any, sinks: Any) -> Any:
        return flash_attn_varlen_func(q, k, v, s_aux=sinks, **named, **options)

    return attention(forward, q, k, v, sinks, rule)


def _batch_of(q: torch.Tensor, cu_seqlens_q: torch.Tensor | None) -> int:
    batch = check_index("cu_seqlens_q", cu_seqlens_q, q, (None,)).shape[0] - 1
    if batch < 0:
        raise ValueError("cu_seqlens_q is empty: expected batch + 1 numbers")
    return batch


def _keys(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    batch: int,
    table: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    seqused_k: torch.Tensor | None,
) -> keys.Keys:
    """Packed ones, or those of a cache."""
    if table is None and isinstance(k, torch.Tensor) and k.dim() == 3:
        return keys.packed(q, k, v, batch, cu_seqlens_k, seqused_k)
    return keys.cached(q, ("k", "v"), k, v, batch, table=table, cu_seqlens_k=cu_seqlens_k,
                       used=("seqused_k", seqused_k))  # fmt: skip
