"""Keys and values of a serving call, wherever they lie."""

from dataclasses import dataclass

import torch

from ..checks.readable import readable
from .tensors import check_cache, check_heads, check_index, check_operand, filled_up


@dataclass(frozen=True)
class Keys:
    """Checked, by the names of the argument record."""

    tensors: dict[str, torch.Tensor]  # k, v and where sequences' keys are
    max_keys: int  # that a sequence can have; packed: that there are
    d_v: int  # of the values as they were given
    page_size: int = 0


def packed(
    q: torch.Tensor, k: object, v: object, batch: int, cu_seqlens_k: object, seqused_k: object
) -> Keys:
    """Keys (total_k, kv heads, d), one sequence after the other; copied where a kernel cannot read
    them. Raises TypeError or ValueError."""
    k, v = (check_operand(name, x, q, (3,)) for name, x in (("k", k), ("v", v)))
    check_heads(q, k, v)
    starts = check_index("cu_seqlens_k", cu_seqlens_k, q, (batch + 1,))
    d_v = v.shape[2]
    k, v = (filled_up(x).unsqueeze(0) for x in (k, v))
    k, v = (readable(x) if x.numel() else x for x in (k, v))
    used = indices(q, batch, {"seqused_k": seqused_k})
    return Keys({"k": k, "v": v, "cu_seqlens_k": starts} | used, k.shape[1], d_v)


def cached(
    q: torch.Tensor,
    names: tuple[str, str],
    k: object,
    v: object,
    batch: int,
    *,
    table: object = None,
    slots: object = None,
    cu_seqlens_k: object = None,
    used: tuple[str, object],
    qv: torch.Tensor | None = None,
) -> Keys:
    """A cache (batch or pages, capacity or page size, kv heads, d), never copied. `slots`: where in
    it each sequence lies; `used`: the lengths; `qv`: with a latent cache. Names are for messages.
    Raises TypeError or ValueError."""
    k, v = (check_operand(name, x, q, (4,)) for name, x in zip(names, (k, v), strict=True))
    check_heads(q, k, v, qv)
    for name, x in zip(names, (k, v), strict=True):
        check_cache(name, x)
    tensors = {"k": k, "v": v}
    if used[1] is not None:
        tensors["seqused_k"] = check_index(*used, q, (batch,))
    if cu_seqlens_k is not None:
        tensors["cu_seqlens_k"] = check_index("cu_seqlens_k", cu_seqlens_k, q, (batch + 1,))
    if table is None:
        if slots is not None:
            tensors["cache_batch_idx"] = check_index("cache_batch_idx", slots, q, (batch,))
        elif k.shape[0] != batch:
            raise ValueError(
                f"{names[0]} has batch size {k.shape[0]}, but there are {batch} sequences"
            )
        return Keys(tensors, k.shape[1], v.shape[3])
    if slots is not None:
        raise ValueError("cache_batch_idx is given with block_table, which has every place already")
    if k.shape[1] == 0:
        raise ValueError(f"block_table is given, and {names[0]} has pages of 0 keys")
    tensors["block_table"] = check_index("block_table", table, q, (batch, None))
    max_keys = tensors["block_table"].shape[1] * k.shape[1]
    return Keys(tensors, max_keys, v.shape[3], k.shape[1])


def indices(q: torch.Tensor, batch: int, given: dict[str, object]) -> dict[str, torch.Tensor]:
    """One number for each sequence; those that are None are left out. Raises TypeError or
    ValueError."""
    return {name: check_index(name, x, q, (batch,)) for name, x in given.items() if x is not None}
