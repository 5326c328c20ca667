"""What the extension asks of PyTorch before it launches a call like an earlier one."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from .checks.eager import QUIET_FUNCTIONS, QUIET_VARIABLES
from .library import load_library
from .memory import description_of
from .triton_kit.empty import direct_empty


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
        new_empty=torch.Tensor.new_empty,
        empty_strided=direct_empty(),
        description_of=description_of,
        current_device=torch._C._cuda_getDevice if torch.cuda.device_count() > 1 else None,
    )


def nothing_done(*_: object) -> None:
    """The short way where there is none: every call is checked in full."""
