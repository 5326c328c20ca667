"""What the extension asks of PyTorch before it launches a call like an earlier one."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._C._dynamo import guards

from .checks.eager import QUIET_FUNCTIONS, QUIET_VARIABLES
from .library import load_library


@cache
def surroundings(*quiet: Callable[[], object]) -> Any:
    """Of the extension's type; once a process. `quiet`: functions that it asks as well, which
    return false where nothing is going on."""
    return load_library().Surroundings(
        quiet=QUIET_FUNCTIONS + quiet,
        settings=[(vars(module), name, value) for module, name, value in QUIET_VARIABLES],
        is_grad_enabled=torch.is_grad_enabled,
        is_negated=torch.Tensor.is_neg,
    )


@cache
def new_tensors() -> Any:
    """Of the extension's type; once a process."""
    return load_library().NewTensors(
        empty_like=torch.empty_like,
        # Without PyTorch's dispatcher, where there is such a function (compiled code calls it).
        empty_strided=getattr(guards, "_empty_strided_cuda", None),
        description_of=_description_of,
        current_device=torch._C._cuda_getDevice if torch.cuda.device_count() > 1 else None,
    )


def _description_of(
    tensor: torch.Tensor,
) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
    """Size, strides and type of what empty_like makes of the tensor."""
    made = torch.empty_like(tensor, device="meta")
    return tuple(made.shape), made.stride(), made.dtype


def nothing_done(*_: object) -> None:
    """The short way where there is none: every call is checked in full."""
