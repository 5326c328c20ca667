"""Memory without PyTorch's dispatcher."""

from collections.abc import Callable
from typing import Any

import torch

Empty = Callable[[Any, Any, torch.dtype], torch.Tensor]  # (size, stride, dtype)


def direct_empty() -> Empty | None:
    """What compiled code makes uninitialised tensors with, on the current CUDA device; None where
    PyTorch has no such function. Sizes and strides are tuples."""
    from torch._C._dynamo import guards

    return getattr(guards, "_empty_strided_cuda", None)
