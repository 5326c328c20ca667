"""Where launches go that are repeated: the GPU, as PyTorch and Triton see it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Protocol

import torch

from . import extension
from .empty import Empty, direct_empty
from .launched import Launched
from .launchers import Direct, Packed, Start, checked_start, direct, packed

# Of the driver, behind cuLaunchKernel; not all of them are in old ones.
_DRIVER_FUNCTIONS = (
    "cuLaunchCooperativeKernel", "cuLaunchKernelEx", "cuTensorMapReplaceAddress", "cuStreamGetId",
    "cuStreamIsCapturing",
)  # fmt: skip


class Machine(Protocol):
    """Each member is asked for once, and then called for every launch."""

    device_type: str

    @property
    def hooks(self) -> tuple[tuple[object, str], ...]:
        """Attributes of objects: functions that want to see launches, in a list `calls` of it or in
        place of one."""

    @property
    def current_device(self) -> Callable[[], int]:
        """The number of the device that launches go to."""

    @property
    def stream(self) -> Callable[[int], int]:
        """The current stream of a device."""

    @property
    def empty(self) -> Empty:
        """Memory of the current device."""

    @property
    def zeros(self) -> Callable[[int], torch.Tensor]:
        """So many bytes of the current device, zero on its current stream."""

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


def ready(machine: Machine) -> Callable[[int], bool]:
    """Whether launches may go to this device now, and nobody wants to see them."""
    hooks, current_device = machine.hooks, machine.current_device

    def is_ready(device: int) -> bool:
        for settings, name in hooks:
            value = getattr(settings, name)
            if getattr(value, "calls", value):
                return False
        return current_device() == device

    return is_ready


class Gpu:
    """What a repeated launch asks of PyTorch and Triton."""

    device_type = "cuda"

    @cached_property
    def hooks(self) -> tuple[tuple[object, str], ...]:
        """A profiler's."""
        from triton import knobs

        return tuple((knobs.runtime, f"launch_{when}_hook") for when in ("enter", "exit"))

    @cached_property
    def current_device(self) -> Callable[[], int]:
        """In C, where PyTorch has CUDA at all."""
        found: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
        return found

    @cached_property
    def stream(self) -> Callable[[int], int]:
        from triton.runtime import driver

        return driver.active.get_current_stream  # type: ignore[no-any-return]

    @cached_property
    def empty(self) -> Empty:
        return direct_empty() or (
            lambda size, stride, dtype: torch.empty_strided(
                size, stride, dtype=dtype, device="cuda"
            )
        )

    @cached_property
    def zeros(self) -> Callable[[int], torch.Tensor]:
        return partial(torch.zeros, dtype=torch.uint8, device="cuda")

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
            driver = ctypes.CDLL("libcuda.so.1")
            launch = _address(driver.cuLaunchKernel)
        except (ImportError, AttributeError, OSError):
            return None
        others = [_address(getattr(driver, name, None)) for name in _DRIVER_FUNCTIONS]
        return partial(made, (launch, *others), _exchange_api())

    @cached_property
    def remembered(self) -> Callable[..., Any] | None:
        try:
            made = extension.load().RememberedCalls
        except (ImportError, AttributeError):  # not built, or older
            return None
        return partial(made, exchange_api=_exchange_api())


def _address(function: Any) -> int:
    """0 where there is none."""
    return (function and ctypes.cast(function, ctypes.c_void_p).value) or 0


def _exchange_api() -> Any:
    """DLPack's, of PyTorch's tensors; None where this release has none."""
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
