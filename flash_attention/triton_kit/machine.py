"""Where launches go that are repeated: the GPU, as PyTorch and Triton see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import torch

from .launched import Launched

Start = Callable[[int, Sequence[Any]], object]  # (stream, all arguments)
Empty = Callable[[Any, Any, torch.dtype], torch.Tensor]  # (size, stride, type)


class Machine(Protocol):
    """Each member is asked for once, and then called for every launch."""

    device_type: str

    def ready(self, device: int) -> bool:
        """Whether launches may go to this device now, and nobody wants to see them."""

    @property
    def stream(self) -> Callable[[int], int]:
        """The current stream of a device."""

    @property
    def empty(self) -> Empty:
        """Memory of the current device."""

    def starter(self, launch: Launched) -> Start:
        """What starts the kernel of a launch with other arguments."""


class Gpu:
    """What a repeated launch asks of PyTorch and Triton."""

    device_type = "cuda"

    @cached_property
    def _settings(self) -> Any:
        from triton import knobs

        return knobs.runtime

    def ready(self, device: int) -> bool:
        """The device is the current one, and no profiler has hooks at launches."""
        for hook in (self._settings.launch_enter_hook, self._settings.launch_exit_hook):
            if hook is not None and getattr(hook, "calls", True):
                return False
        return bool(torch._C._cuda_getDevice() == device)

    @cached_property
    def stream(self) -> Callable[[int], int]:
        from triton.runtime import driver

        return driver.active.get_current_stream  # type: ignore[no-any-return]

    @cached_property
    def empty(self) -> Empty:
        """Without PyTorch's dispatcher, where there is such a function (compiled code calls it)."""
        from torch._C._dynamo import guards

        direct = getattr(guards, "_empty_strided_cuda", None)
        if direct is not None:
            return direct  # type: ignore[no-any-return]
        return lambda size, stride, dtype: torch.empty_strided(
            size, stride, dtype=dtype, device="cuda"
        )

    def starter(self, launch: Launched) -> Start:
        """CompiledKernel.run, as JITFunction.run calls it (3.6 to 3.9), without hooks."""
        kernel, (x, y, z) = launch.kernel, launch.grid
        run, function, packed = kernel.run, kernel.function, kernel.packed_metadata

        def start(stream: int, arguments: Sequence[Any]) -> None:
            run(x, y, z, stream, function, packed, None, None, None, *arguments)

        return start
