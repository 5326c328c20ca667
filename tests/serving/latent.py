"""Batches of sequences with a latent cache, as tests/serving/problems.py has them without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import flash_attention
from tests.serving.problems import NAN, Batch, ints

ROTATED, VALUE = 64, 512
D = VALUE + ROTATED


@dataclass
class LatentBatch(Batch):
    """Keys of 576 elements, of which the first 512 are the value. `separate`: caches in two
    allocations, not as views of one."""

    heads: int = 16
    kv_heads: int = 1
    d: int = D
    d_v: int = VALUE
    separate: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.v = [k[..., :VALUE] for k in self.k]

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, /, **keywords: Any) -> Any:
        """flash_attn_with_kvcache, in FlashAttention-3's form."""
        rotated, value = k[..., VALUE:], k[..., :VALUE]
        if self.separate:
            rotated, value = rotated.contiguous(), v
        return flash_attention.flash_attn_with_kvcache(
            q[..., VALUE:], rotated, value, qv=q[..., :VALUE], return_softmax_lse=True,
            **self._options(keywords),
        )  # fmt: skip

    def with_cache(
        self, k: torch.Tensor, v: torch.Tensor, **keywords: Any
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        keywords.setdefault("cache_seqlens", ints(self.keys, self.device))
        return list(zip(*self.attend(torch.stack(self.q), k, v, **keywords), strict=True))

    def packed(self, page: int = 16, **keywords: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Packed queries, with rows of NaN around them, and pages."""
        k, v, table = self.pages(page)
        rows = [x.new_full((n, *x.shape[1:]), NAN) for n, x in ((3, self.q[0]), (2, self.q[0]))]
        ends = (torch.tensor(self.queries).cumsum(0) + 3).tolist()
        starts = ints([3, *ends], self.device)
        o, lse = self.attend(
            torch.cat([rows[0], *self.q, rows[1]]), k, v, cu_seqlens_q=starts, block_table=table,
            cache_seqlens=ints(self.keys, self.device), **keywords,
        )  # fmt: skip
        return [(o[a:b], lse[:, a:b]) for a, b in zip([3, *ends], ends, strict=False)]
