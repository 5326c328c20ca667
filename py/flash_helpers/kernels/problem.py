"""An attention problem: element type, sizes and mask, what it costs, and tensors for it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from ..base.dtypes import DType
from ..base.lazy import torch
from .flops import BACKWARD_OVER_FORWARD, calc_attn_flop, calc_io_elements, calc_matmul_flop

# Of the widest heads that calls of the library are served with; MLA's latent ones are wider.
MAX_HEAD_DIMENSION = 256

_AT_LEAST_ONE = ("batch", "seqlen_q", "n_heads", "n_kv_heads", "d_head")
_MAY_BE_ZERO = ("seqlen_k", "d_v")


@dataclass(frozen=True)
class AttentionProblem:
    """Q of (batch, seqlen_q, n_heads, d_head), K of (batch, seqlen_k, n_kv_heads, d_head) and V of
    (batch, seqlen_k, n_kv_heads, d_v).

    `d_v` of 0 stands for d_head. `causal`: the last query sees every key, each query before it one
    key less. `gradients`: what is computed are those of Q, K and V, in place of the output;
    `deterministic`: bitwise the same in every run, as the output always is. Raises ValueError for
    sizes that make no problem; without a key there is one, whose output is 0.
    """

    dtype: DType
    batch: int
    seqlen_q: int
    seqlen_k: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_v: int = 0
    causal: bool = False
    gradients: bool = False
    deterministic: bool = False

    def __post_init__(self) -> None:
        for least, names in ((1, _AT_LEAST_ONE), (0, _MAY_BE_ZERO)):
            for name in names:
                if getattr(self, name) < least:
                    raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads {self.n_heads} is not a multiple of n_kv_heads {self.n_kv_heads}"
            )
        if not self.d_v:
            object.__setattr__(self, "d_v", self.d_head)

    @classmethod
    def self_attention(
        cls, dtype: DType, batch: int, seq_len: int, n_heads: int, d_head: int, *,
        n_kv_heads: int = 0, causal: bool = False,
    ) -> AttentionProblem:  # fmt: skip
        """As many keys as queries; `n_kv_heads` of 0 stands for n_heads."""
        kv_heads = n_kv_heads or n_heads
        return cls(dtype, batch, seq_len, seq_len, n_heads, kv_heads, d_head, causal=causal)

    def __str__(self) -> str:
        kv = f" ({self.n_kv_heads} KV)" if self.n_kv_heads != self.n_heads else ""
        keys = f" x {self.seqlen_k}" if self.seqlen_k != self.seqlen_q else ""
        d_v = f" and {self.d_v}" if self.d_v != self.d_head else ""
        causal = ", causal" if self.causal else ""
        gradients = ", gradients" if self.gradients else ""
        gradients += ", deterministic" if self.deterministic else ""
        return (
            f"{self.dtype.name}, batch {self.batch}, heads {self.n_heads}{kv}, "
            f"seq {self.seqlen_q}{keys}, d {self.d_head}{d_v}{causal}{gradients}"
        )

    def matmul_flop(self) -> int:
        """The two matmuls alone, or the five of the gradients: the count that peers publish."""
        return self._of_pass(calc_matmul_flop(*self._counted))

    def attn_flop(self) -> int:
        """The matmuls and the softmax."""
        return self._of_pass(calc_attn_flop(*self._counted))

    def _of_pass(self, forward_flop: int) -> int:
        return round(BACKWARD_OVER_FORWARD * forward_flop) if self.gradients else forward_flop

    @property
    def _counted(self) -> tuple[int, int, int, int, int, bool, int]:
        lengths = (self.seqlen_q, self.seqlen_k)
        return self.batch, self.n_heads, *lengths, self.d_head, self.causal, self.d_v

    def n_bytes(self) -> int:
        """Q, K and V read once and O written once: what has to cross the device memory. With
        gradients O is read, its own gradient beside it, and those of Q, K and V are written."""
        elements = calc_io_elements(
            self.batch, self.seqlen_q, self.seqlen_k, self.n_heads, self.n_kv_heads, self.d_head,
            self.d_v,
        )  # fmt: skip
        return self.dtype.bytes * elements * (2 if self.gradients else 1)

    def tensors(
        self, seed: int, device: str | torch.device
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, k and v, standard normal: the same for the same problem, seed and kind of device."""
        generator = torch.Generator(device=device).manual_seed(seed)
        dtype = self.dtype.to_torch_dtype()

        def draw(*sizes: int) -> torch.Tensor:
            return torch.randn(self.batch, *sizes, generator=generator, device=device, dtype=dtype)

        return (
            draw(self.seqlen_q, self.n_heads, self.d_head),
            draw(self.seqlen_k, self.n_kv_heads, self.d_head),
            draw(self.seqlen_k, self.n_kv_heads, self.d_v),
        )


def fresh_seed() -> int:
    """A seed that differs on every run; print it, so that a failure can be repeated."""
    return secrets.randbelow(2**31)
