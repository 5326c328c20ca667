"""What `flash_attn_with_kvcache` writes to the cache before it attends, and what it rotates."""

from dataclasses import dataclass, field

import torch

from ..checks.arguments import check_output_strides
from ..checks.readable import readable
from .keys import Keys
from .options import Options
from .tensors import as_batch, check_heads, check_index, check_operand, check_table


@dataclass(frozen=True)
class Appended:
    """Checked, by the names of the argument record."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Rotary:
    """As they were given."""

    cos: object
    sin: object
    seqlens: object
    interleaved: bool


def new_keys(
    q: torch.Tensor,
    cache: Keys,
    batch: int,
    k: object,
    v: object,
    cu_seqlens_k_new: object,
    cache_seqlens: object,
    qv: torch.Tensor | None = None,
) -> Appended:
    """New rows of k and v, copied where a kernel cannot read them. Raises TypeError or
    ValueError."""
    if k is None and v is None:
        if cu_seqlens_k_new is not None:
            raise ValueError("cu_seqlens_k_new is given without k")
        return Appended()
    if k is None or v is None:
        raise ValueError("k and v are appended together: one of them is None")
    if cache_seqlens is None:
        raise ValueError("k is given without cache_seqlens, which says where it is appended")
    dims = (4,) if cu_seqlens_k_new is None else (3,)
    k, v = (check_operand(name, x, q, dims) for name, x in (("k", k), ("v", v)))
    check_heads(q, k, v, qv)
    for name, x, of_cache in (("k", k, cache.tensors["k"]), ("v", v, cache.tensors["v"])):
        if x.shape[-2:] != of_cache.shape[-2:]:
            raise ValueError(
                f"{name} has heads and head dimension {tuple(x.shape[-2:])}, but the cache has "
                f"{tuple(of_cache.shape[-2:])}"
            )
        check_output_strides(of_cache, f"{name}_cache")
    numbers = {"n_new": k.shape[0], "seqlen_new": 0}
    tensors = {}
    if cu_seqlens_k_new is None:
        if k.shape[0] != batch:
            raise ValueError(f"k has batch size {k.shape[0]}, but there are {batch} sequences")
        numbers = {"n_new": batch * k.shape[1], "seqlen_new": k.shape[1]}
    else:
        name = "cu_seqlens_k_new"
        tensors["cu_seqlens_new"] = check_index(name, cu_seqlens_k_new, q, (batch + 1,))
    if numbers["n_new"] and batch and not q.numel():
        raise ValueError("q has no rows: k would not be appended")
    rows = {"k_new": as_batch(k), "v_new": as_batch(v)}
    return Appended(tensors | {name: readable(x) for name, x in rows.items()}, numbers)


def rotated(q: torch.Tensor, batch: int, rotary: Rotary, options: Options, k: object) -> Appended:
    """The tables of angles, and memory for the rotated q. Raises TypeError or ValueError."""
    if rotary.cos is None or rotary.sin is None:
        if rotary.cos is not None or rotary.sin is not None or rotary.seqlens is not None:
            raise ValueError("rotary_cos and rotary_sin belong together: one of them is None")
        return Appended()
    if k is None:
        raise ValueError("rotary_cos is given without k, which it rotates")
    cos = check_table("rotary_cos", rotary.cos, q)
    sin = check_table("rotary_sin", rotary.sin, q)
    if cos.shape != sin.shape:
        raise ValueError(
            f"rotary_cos has shape {tuple(cos.shape)} and rotary_sin {tuple(sin.shape)}: they must "
            "be equal"
        )
    n_rows, dim = cos.shape[0], 2 * cos.shape[1]
    if dim % 16 or not 0 < dim <= q.shape[-1] or not n_rows:
        raise ValueError(
            f"rotary_cos has shape {tuple(cos.shape)}, which rotates {dim} elements of a head: "
            f"expected a multiple of 16 up to {q.shape[-1]}, and at least one row"
        )
    tensors = {
        "q_new": readable(as_batch(q)).view(q.shape),
        "q": torch.empty(q.shape, dtype=q.dtype, device=q.device),
        "rotary_cos": cos,
        "rotary_sin": sin,
    }
    if rotary.seqlens is not None:
        tensors["rotary_seqlens"] = check_index("rotary_seqlens", rotary.seqlens, q, (batch,))
    return Appended(
        tensors,
        {"rotary_dim": dim, "rotary_rows": n_rows, "rotary_interleaved": int(rotary.interleaved),
         "rotary_each_query": int(options.is_limited())},
    )  # fmt: skip
