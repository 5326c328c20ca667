"""Tensors that outlive the call that made them. Their memory must not come from a pool that is
current by chance, that of a CUDA graph, which would find it in use."""

from threading import Thread
from typing import Any

import torch

Unread = tuple[torch.Tensor, ...]


def without_memory(
    shape: tuple[int, ...], device: torch.device, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """A tensor for `empty_like` alone."""
    like = torch.empty(1, dtype=dtype, device=device).expand(shape)
    like.untyped_storage().resize_(0)
    return like


def of_dropout(q: torch.Tensor) -> Unread:
    """The two numbers and the mask that only dropout needs."""
    return (
        torch.empty(2, dtype=torch.uint64, device=q.device),
        torch.empty((), dtype=torch.uint64, device=q.device),
        torch.empty(0, dtype=q.dtype, device=q.device),
    )


def of_dropout_to_keep(q: torch.Tensor) -> Unread | None:
    """The same, from the memory of a thread that no pool is for; None while CUDA records, when
    other threads must not ask for memory."""
    if torch.cuda.is_current_stream_capturing():
        return None
    made: list[Any] = []
    thread = Thread(target=lambda: made.append(of_dropout(q)))
    thread.start()
    thread.join()
    return made[0] if made else None
