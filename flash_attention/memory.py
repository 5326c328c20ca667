"""Memory for tensors. Of those that outlive the call that made them it must not come from a pool
that is current by chance, that of a CUDA graph, which would find it in use."""

import torch


def description_of(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
    """Size, stride and dtype of what `empty_like` makes of the tensor, as `direct_empty` takes
    them."""
    made = torch.empty_like(tensor, device="meta")
    return tuple(made.shape), made.stride(), made.dtype


def without_memory(
    shape: tuple[int, ...], device: torch.device, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """A tensor for `empty_like` alone."""
    like = torch.empty((), dtype=dtype, device=device).expand(shape)
    like.untyped_storage().resize_(0)
    return like
