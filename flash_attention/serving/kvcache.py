"""`flash_attn_with_kvcache`: attention of new queries with a cache of keys and values."""

from typing import Any

import torch

from ..checks.eager import require_eager
from . import append, keys
from .latent import with_latents
from .launch import Call
from .options import Options, Window, check_refused, make_options, one_of
from .result import Result, run
from .short_way import Given, again
from .tensors import check_index, check_operand, sinks_of


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    cache_seqlens: int | torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: torch.Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    *,
    qv: torch.Tensor | None = None,
    page_table: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k_new: torch.Tensor | None = None,
    max_seqlen_q: int | torch.Tensor | None = None,
    rotary_seqlens: torch.Tensor | None = None,
    s_aux: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    scheduler_metadata: Any = None,
    pack_gqa: Any = None,
    sm_margin: int = 0,
    fa_version: int | None = None,
) -> Result:
    """softmax(scale * q k^T) v with keys and values of a cache, with the arguments and results of
    flash-attn's function of this name, and the names of its successors as keywords.

    Which keys a query sees, `softmax_scale`, `causal`, `window_size`, `softcap`, `block_table`
    (`page_table`), `cache_leftpad`, `s_aux` (`learnable_sink`, `sinks`), `num_splits` and what is
    raised: as in `flash_attn_varlen_func`.

    Args:
        q: (batch, seqlen_q, heads, d), or (total_q, heads, d) with cu_seqlens_q: int32 (batch + 1).
        k_cache, v_cache: (batch or slots, capacity, kv_heads, d), or with block_table the pages
            (pages, page_size, kv_heads, d); of v_cache d or less. Never copied: strides are
            multiples of 8 elements, 1 in the last dimension; 16-byte aligned.
        cache_seqlens: how many keys each sequence has: int32 (batch), or an int for all; None: as
            many as the cache holds.
        cache_batch_idx: int32 (batch): the slot of each sequence; not with block_table.
        out: receives the result: shaped like q, with d of v_cache; allocated by default.
        return_softmax_lse: also return softmax_lse.
        k, v: (batch, seqlen_new, kv_heads, d), or (total_new, kv_heads, d) with cu_seqlens_k_new:
            int32 (batch + 1); written to the cache behind each sequence's cache_seqlens keys, and
            seen. Rows for which the cache has no room are left out.
        rotary_cos, rotary_sin: (positions, rotary_dim / 2), like q, with rotary_dim a multiple of
            16 up to d: rotate k, before it is written, and q. Row i of k is at position
            cache_seqlens + i (or rotary_seqlens + i: int32 (batch)), and so is query i with causal
            or a window; without either every query is at the first of these.
        rotary_interleaved: neighbours are rotated, else elements rotary_dim / 2 apart.
        qv: of MLA, like q but of 512 elements, as v_cache; q and k_cache of 64: scores are
            scale * (q k^T + qv v^T), and softmax_scale defaults to 576 ** -0.5.
        alibi_slopes, q_descale, k_descale, v_descale: only None is supported.
        max_seqlen_q, scheduler_metadata, pack_gqa, sm_margin, fa_version: taken and ignored.

    Returns:
        out, or (out, softmax_lse): fp32 (batch, heads, seqlen_q), of packed q (heads, total_q).
    """
    given: Given = (
        q, k_cache, v_cache, out, cu_seqlens_q, None, None, cache_seqlens, cache_leftpad,
        cache_batch_idx, block_table, page_table, s_aux, learnable_sink, sinks, qv, softmax_scale,
        causal, window_size, softcap, num_splits, True, 1 + bool(return_softmax_lse),
        (alibi_slopes, q_descale, k_descale, v_descale, k, v, cu_seqlens_k_new, rotary_cos,
         rotary_sin, rotary_seqlens),
    )  # fmt: skip
    if (served := again(given)) is not None:
        return served
    require_eager()
    check_refused(alibi_slopes=alibi_slopes, q_descale=q_descale, k_descale=k_descale,
                  v_descale=v_descale)  # fmt: skip
    check_operand("q", q, q, (4,) if cu_seqlens_q is None else (3,))
    q, latent, d_head, softmax_scale = with_latents(q, qv, softmax_scale)
    options = make_options(d_head, softmax_scale, causal, window_size, softcap, num_splits)
    rotary = append.Rotary(rotary_cos, rotary_sin, rotary_seqlens, rotary_interleaved)
    tensors = latent | _queries(q, cu_seqlens_q, cache_leftpad, s_aux, learnable_sink, sinks)
    call, d_v = _call(
        tensors, options, (k_cache, v_cache), (block_table, page_table), cache_batch_idx,
        cache_seqlens, (k, v, cu_seqlens_k_new), rotary)  # fmt: skip
    return run(call, out, d_v, with_lse=return_softmax_lse, given=given)


def _batch_of(q: torch.Tensor, cu_seqlens_q: torch.Tensor | None) -> int:
    if cu_seqlens_q is None:
        return q.shape[0]
    return max(check_index("cu_seqlens_q", cu_seqlens_q, q, (None,)).shape[0] - 1, 0)


def _queries(
    q: torch.Tensor, cu_seqlens_q: torch.Tensor | None, leftpad: torch.Tensor | None, *sinks: object
) -> dict[str, torch.Tensor]:
    """`sinks`: under each of their names."""
    tensors = {"q": q} | keys.indices(q, _batch_of(q, cu_seqlens_q), {"leftpad_k": leftpad})
    names = "s_aux", "learnable_sink", "sinks"
    tensors |= sinks_of(dict(zip(names, sinks, strict=True)), q)
    return tensors if cu_seqlens_q is None else tensors | {"cu_seqlens_q": cu_seqlens_q}


def _call(
    tensors: dict[str, torch.Tensor],
    options: Options,
    cache: tuple[torch.Tensor, torch.Tensor],
    tables: tuple[torch.Tensor | None, torch.Tensor | None],
    slots: torch.Tensor | None,
    lengths: int | torch.Tensor | None,
    rows: tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None],
    rotary: append.Rotary,
) -> tuple[Call, int]:
    """What is launched, and the head dimension of its result. `rows`: those that are appended, and
    where each sequence's begin."""
    q = tensors["q"]
    table: Any = one_of(dict(zip(("block_table", "page_table"), tables, strict=True)))
    batch = _batch_of(q, tensors.get("cu_seqlens_q"))
    for_all = isinstance(lengths, int) and not isinstance(lengths, bool)
    found = keys.cached(
        q, ("k_cache", "v_cache"), *cache, batch, table=table, slots=slots,
        used=("cache_seqlens", None if for_all else lengths), qv=tensors.get("qv"),
    )  # fmt: skip
    max_keys = found.max_keys
    if isinstance(lengths, int) and not 0 <= lengths <= max_keys:
        raise ValueError(f"cache_seqlens is {lengths}: the cache holds {max_keys} keys")
    new = append.new_keys(q, found, batch, *rows, lengths, tensors.get("qv"))
    turned = append.rotated(q, batch, rotary, options, rows[0])
    tensors |= found.tensors
    if isinstance(lengths, int):
        if new.numbers:
            tensors["seqused_k"] = torch.full((batch,), lengths, dtype=torch.int32, device=q.device)
        else:
            max_keys = lengths
    tensors |= new.tensors | turned.tensors
    call = Call(tensors, options, batch, max_keys, found.page_size,
                appended=new.numbers | turned.numbers)  # fmt: skip
    return call, found.d_v
