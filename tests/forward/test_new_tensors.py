"""New tensors of a description are those that PyTorch's empty_like makes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch._C._dynamo import guards

from flash_attention.memory import description_of, without_memory

zeros = partial(torch.zeros, dtype=torch.bfloat16)
LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: zeros(2, 5, 3, 16),
    "heads first": lambda: zeros(2, 3, 5, 16).transpose(1, 2),
    "packed": lambda: zeros(2, 5, 3, 3, 16)[:, :, 1],
    "padded rows": lambda: zeros(2, 5, 3, 24)[..., :16],
    "batch last": lambda: zeros(5, 3, 2, 16).permute(2, 0, 1, 3),
    "columns first": lambda: zeros(2, 5, 16, 3).transpose(2, 3),
    "the same batch": lambda: zeros(1, 5, 3, 16).expand(4, -1, -1, -1),
    "of one": lambda: zeros(1, 1, 3, 16).transpose(0, 2),
    "no keys": lambda: zeros(2, 0, 3, 16).transpose(1, 2),
    "packed sequences": lambda: zeros(7, 9, 16)[:, ::3],
    "a prototype": lambda: without_memory((2, 3, 5), torch.device("cpu")),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_described_tensor_is_laid_out_as_pytorch_s(layout: str) -> None:
    tensor = LAYOUTS[layout]()
    expected = torch.empty_like(tensor)
    # As that of CUDA: a check of the arguments' types is part of it.
    found = vars(guards)["_empty_strided_cpu"](*description_of(tensor))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.stride() == expected.stride()


def test_a_described_tensor_is_a_plain_one() -> None:
    """Of a tensor that requires gradients, and in inference mode."""
    make = vars(guards)["_empty_strided_cpu"]
    leaf = torch.zeros(2, 5, 3, 16, requires_grad=True)
    found = make(*description_of(leaf))
    assert not found.requires_grad and found.is_leaf and not found.is_inference()
    with torch.inference_mode():
        assert make(*description_of(leaf)).is_inference()
