"""A problem to run: shapes, element type and seed, and what it costs."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..base.dtypes import DType
from .flops import calc_io_bytes, calc_matmul_flop, calc_self_attn_flop

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Workload:
    """Self-attention on (batch, seq, heads, d), without a mask or causal."""

    batch: int
    n_heads: int
    n_kv_heads: int
    seq_len: int
    d_head: int
    dtype: DType
    seed: int
    causal: bool = False

    def __post_init__(self) -> None:
        for name in ("batch", "n_heads", "n_kv_heads", "seq_len", "d_head"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads {self.n_heads} is not a multiple of n_kv_heads {self.n_kv_heads}"
            )

    def __str__(self) -> str:
        kv = f" ({self.n_kv_heads} KV)" if self.n_kv_heads != self.n_heads else ""
        causal = ", causal" if self.causal else ""
        return (
            f"{self.dtype.name}, batch {self.batch}, heads {self.n_heads}{kv}, "
            f"seq {self.seq_len}, d {self.d_head}{causal}, seed {self.seed}"
        )

    def matmul_flop(self) -> int:
        return calc_matmul_flop(
            self.batch, self.n_heads, self.seq_len, self.seq_len, self.d_head, self.causal
        )

    def attn_flop(self) -> int:
        flop = calc_self_attn_flop(self.batch, self.n_heads, self.seq_len, self.d_head)
        return flop // 2 if self.causal else flop

    def n_bytes(self) -> int:
        """Q, K, V read once and O written once."""
        return calc_io_bytes(self.batch, self.n_heads, self.n_kv_heads, self.seq_len, self.d_head)

    def generate(
        self, device: str | torch.device
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, k and v, standard normal: the same for the same workload and kind of device."""
        import torch

        generator = torch.Generator(device=device).manual_seed(self.seed)
        dtype = self.dtype.to_torch_dtype()

        def draw(n_heads: int) -> torch.Tensor:
            shape = (self.batch, self.seq_len, n_heads, self.d_head)
            return torch.randn(shape, generator=generator, device=device, dtype=dtype)

        return draw(self.n_heads), draw(self.n_kv_heads), draw(self.n_kv_heads)


def fresh_seed() -> int:
    """A seed that differs on every run; print it, so that a failure can be repeated."""
    return secrets.randbelow(2**31)
