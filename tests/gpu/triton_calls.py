"""Problems of the Triton and Gluon kernels on the GPU: poisoned memory, the reference in fp64."""

from __future__ import annotations

from collections.abc import Callable

import torch

from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import bitwise_equal, compare
from tests.gpu.inputs import guarded
from tests.guarded import margins_ok

Forward = Callable[..., torch.Tensor]
LENGTHS = (1, 63, 113, 127, 128, 203, 1023, 1024, 4097)
DTYPES = (torch.float16, torch.bfloat16)


def draw(
    lengths: tuple[int, int], heads: tuple[int, int], d_head: int, dtype: torch.dtype, seed: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k, v in poisoned memory. Keys grow towards the front, which the kernels of the Hopper
    family reach last: their maxima rise on the way."""
    random = torch.Generator(device="cuda").manual_seed(seed)

    def tensor(length: int, n_heads: int, growth: float) -> torch.Tensor:
        shape = (2, length, n_heads, d_head)
        values = torch.randn(shape, generator=random, device="cuda")
        values *= torch.linspace(growth, 1.0, length, device="cuda")[:, None, None]
        return guarded(shape, dtype, values.to(dtype))

    return tensor(lengths[0], heads[0], 1.0), tensor(lengths[1], heads[1], 6.0), tensor(
        lengths[1], heads[1], 1.0
    )  # fmt: skip


def check(
    forward: Forward, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> None:
    """The row rule, nothing written beside the output, twice the same bits."""
    reference, _ = attention_reference(q, k, v, causal=causal, fp64=True)
    outputs = [guarded(tuple(q.shape), q.dtype) for _ in range(2)]
    for out in outputs:
        assert forward(q, k, v, causal=causal, out=out) is out
    found = compare(outputs[0], reference)
    assert found.passed, found.describe()
    assert all(margins_ok(out) for out in outputs)
    assert bitwise_equal(*outputs)
