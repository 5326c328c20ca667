"""`flash_mla_with_kvcache`: attention of new queries with the latent cache of MLA."""

from typing import Any

import torch

from flash_helpers.kernels.serve_config import ROTATED_OF_LATENT

from .kvcache import flash_attn_with_kvcache
from .latent import VALUE_OF_LATENT
from .short_way import Given, again
from .tensors import check_operand

_D_HEAD = VALUE_OF_LATENT + ROTATED_OF_LATENT


def flash_mla_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor | None,
    cache_seqlens: torch.Tensor | int | None,
    head_dim_v: int,
    tile_scheduler_metadata: Any = None,
    num_splits: Any = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    *,
    out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of new queries with a latent cache (MLA with its projections absorbed), with the
    arguments and results of FlashMLA's function of this name
    (https://github.com/deepseek-ai/FlashMLA).

    Args:
        q: (batch, seqlen_q, heads, 576), fp16 or bf16: in each head 512 elements for the latent
            part, then 64 for the rotated one.
        k_cache: (pages, page_size, kv_heads, 576), or without block_table (batch, capacity,
            kv_heads, 576); of any page size, never copied. A key's first 512 elements are its
            value, and are read once.
        block_table, cache_seqlens, softmax_scale, causal, out: as in `flash_attn_with_kvcache`;
            softmax_scale defaults to 576 ** -0.5.
        head_dim_v: 512.
        tile_scheduler_metadata, num_splits: taken and ignored: nothing is planned on the host.

    Returns:
        (out, softmax_lse): (batch, seqlen_q, heads, 512), and fp32 (batch, heads, seqlen_q).

    Raises:
        TypeError, ValueError: as `flash_attn_with_kvcache`.
    """
    del tile_scheduler_metadata, num_splits
    # As flash_attn_with_kvcache gives the parts, which the extension finds in the whole tensors.
    given: Given = (
        q, k_cache, None, out, None, None, None, cache_seqlens, None, None, block_table, None, None,
        None, None, head_dim_v, softmax_scale, causal, (-1, -1), 0.0, 0, True, 2, (),
    )  # fmt: skip
    served: Any = again(given)
    if served is not None:
        return served  # type: ignore[no-any-return]
    if head_dim_v != VALUE_OF_LATENT:
        raise ValueError(f"head_dim_v is {head_dim_v!r}: expected {VALUE_OF_LATENT}")
    for name, x in (("q", q), ("k_cache", k_cache)):
        check_operand(name, x, x, (4,))
        if x.shape[-1] != _D_HEAD:
            raise ValueError(f"{name} has head dimension {x.shape[-1]}: expected {_D_HEAD}")
    latent, rotated = slice(VALUE_OF_LATENT), slice(VALUE_OF_LATENT, None)
    result: Any = flash_attn_with_kvcache(
        q[..., rotated], k_cache[..., rotated], k_cache[..., latent], qv=q[..., latent],
        block_table=block_table, cache_seqlens=cache_seqlens, softmax_scale=softmax_scale,
        causal=causal, out=out, return_softmax_lse=True,
    )  # fmt: skip
    o, lse = result
    return o, lse
