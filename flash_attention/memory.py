"""Tensors that outlive the call that made them. Their memory must not come from a pool that is
current by chance, that of a CUDA graph, which would find it in use."""

import torch


def without_memory(
    shape: tuple[int, ...], device: torch.device, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """A tensor for `empty_like` alone."""
    like = torch.empty((), dtype=dtype, device=device).expand(shape)
    like.untyped_storage().resize_(0)
    return like
