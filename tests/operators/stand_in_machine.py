"""A machine for repeated launches that starts nothing, and says what it was asked to start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from flash_attention.library import load_library
from flash_attention.triton_kit.launched import Launched
from flash_attention.triton_kit.launchers import Direct, Packed, Start

EXCHANGE_API = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


class StandInMachine:
    """For CPU tensors. `started`: of every launch the kernel, the grid and all arguments."""

    device_type = "cpu"
    finds_in_c = True  # calls that are repeated

    def __init__(self) -> None:
        self.started: list[tuple[Any, tuple[int, int, int], tuple[Any, ...]]] = []
        self.is_ready = True
        self.hook: Any = None

    @property
    def hooks(self) -> tuple[tuple[object, str], ...]:
        return ((self, "hook"),)

    @property
    def current_device(self) -> Callable[[], int]:
        return lambda: 0 if self.is_ready else 1

    @property
    def stream(self) -> Callable[[int], int]:
        return lambda device: 7

    @property
    def empty(self) -> Callable[[Any, Any, torch.dtype], torch.Tensor]:
        return lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype)

    @property
    def zeros(self) -> Callable[[int], torch.Tensor]:
        return partial(torch.zeros, dtype=torch.uint8)

    def starter(self, launch: Launched) -> Start:
        def start(stream: int, arguments: Sequence[Any]) -> None:
            assert stream == 7
            self.started.append((launch.kernel, launch.grid, tuple(arguments)))

        return start

    def direct(self, launch: Launched) -> Direct | None:
        return None

    def packed(self, launch: Launched) -> Packed | None:
        return None

    @property
    def repeated(self) -> Callable[..., Any] | None:
        return None

    @property
    def remembered(self) -> Callable[..., Any] | None:
        made = partial(load_library().RememberedCalls, exchange_api=EXCHANGE_API)
        return made if self.finds_in_c else None


class Counted:
    """A function that counts how often it is called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls = function, 0
        self.__name__ = "counted"

    def __call__(self, *args: Any, **named: Any) -> Any:
        self.calls += 1
        return self.function(*args, **named)
