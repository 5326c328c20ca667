"""Inputs of the GPU tests: tensors inside poisoned memory, and references computed once per
shape."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch

import flash_attention
from flash_helpers.base.dtypes import DType
from flash_helpers.check.reference import attention_reference
from flash_helpers.kernel_configs import KernelConfig
from tests import guarded as poison


def forward_kernels() -> list[KernelConfig]:
    """Those of the loaded build. Without a GPU none, and no library is needed; with one, a library
    that is missing or refused is an error, never an empty list."""
    if not torch.cuda.is_available():
        return []
    return [
        config
        for config in flash_attention.available_kernels()
        if not (config.GRADIENTS or config.SERVES)
    ]


def guarded(
    shape: tuple[int, ...], dtype: torch.dtype, fill: torch.Tensor | None = None
) -> torch.Tensor:
    return poison.guarded(shape, dtype, fill, "cuda")


@lru_cache(maxsize=4)
def problem(
    dtype: DType, batch: int, heads: int, seq_len: int, d_head: int, seed: int, spread: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k, v in guarded memory, and the fp32 reference output and log-sum-exp."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    shape = (batch, seq_len, heads, d_head)
    torch_dtype = dtype.to_torch_dtype()
    q, k, v = (
        guarded(
            shape,
            torch_dtype,
            torch.randn(shape, generator=generator, device="cuda") * spread,
        )
        for _ in range(3)
    )
    reference, lse = attention_reference(q, k, v)
    return q, k, v, reference, lse


def diagonals(block_m: int, block_n: int, seed: int) -> Iterator[tuple[int, int]]:
    """(query length, key length): all places of the causal diagonal against the blocks of keys, at
    drawn query lengths."""
    generator = torch.Generator().manual_seed(seed)
    for offset in range(-(block_n // 2), block_n - block_n // 2):
        shortest = 1 + max(0, -offset)  # with a key
        q_len = int(torch.randint(shortest, 3 * block_m + 1, (), generator=generator))
        yield q_len, q_len + offset
