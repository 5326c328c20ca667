"""Where launches go that are repeated: the GPU, as PyTorch and Triton see it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Protocol

import torch

from . import extension
from .launched import Launched
from .launchers import Direct, Packed, Start, checked_start, direct, packed

Empty = Callable[[Any, Any, torch.dtype], torch.Tensor]  # (size, stride, type)


class Machine(Protocol):
    """Each member is asked for once, and then called for every launch."""

    device_type: str

    @property
    def ready(self) -> Callable[[int], bool]:
        """Whether launches may go to this device now, and nobody wants to see them."""

    @property
    def stream(self) -> Callable[[int], int]:
        """The current stream of a device."""

    @property
    def empty(self) -> Empty:
        """Memory of the current device."""

    def starter(self, launch: Launched) -> Start:
        """What starts the kernel of a launch with other arguments."""

    def direct(self, launch: Launched) -> Direct | None:
        """The same in two parts, the first of which may be kept; None where it may not."""

    def packed(self, launch: Launched) -> Packed | None:
        """The same for the driver; None where it must not go there at once."""

    @property
    def repeated(self) -> Callable[..., Any] | None:
        """The extension's RepeatedLaunches, which go to the driver; None without one of them."""

    @property
    def remembered(self) -> Callable[..., Any] | None:
        """The extension's RememberedCalls; None without it."""


class Gpu:
    """What a repeated launch asks of PyTorch and Triton."""

    device_type = "cuda"

    @cached_property
    def ready(self) -> Callable[[int], bool]:
        """The device is the current one, and no profiler has hooks at launches."""
        from triton import knobs

        settings: Any = knobs.runtime

        def ready(device: int) -> bool:
            try:
                if settings.launch_enter_hook.calls or settings.launch_exit_hook.calls:
                    return False
            except AttributeError:  # a function, or None, in place of a list of functions
                if settings.launch_enter_hook or settings.launch_exit_hook:
                    return False
            return bool(torch._C._cuda_getDevice() == device)

        return ready

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
        straight = direct(launch)
        return straight.start if straight else checked_start(launch)

    def direct(self, launch: Launched) -> Direct | None:
        return direct(launch)

    def packed(self, launch: Launched) -> Packed | None:
        return packed(launch)

    @cached_property
    def repeated(self) -> Callable[..., Any] | None:
        try:
            made = extension.load().RepeatedLaunches
            launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
        except (ImportError, AttributeError, OSError):
            return None
        return partial(made, ctypes.cast(launch, ctypes.c_void_p).value)

    @cached_property
    def remembered(self) -> Callable[..., Any] | None:
        try:
            return extension.load().RememberedCalls  # type: ignore[no-any-return]
        except (ImportError, AttributeError):  # not built, or older
            return None
