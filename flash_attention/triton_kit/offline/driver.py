"""A stand-in for Triton's CUDA driver: names an architecture, launches nothing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

_LOCK = threading.RLock()


class StandInTensor:
    """What Triton wants to know of a tensor that it will not touch."""

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.shape = shape
        self.dtype = dtype
        strides = [1]
        for n in reversed(shape[1:]):
            strides.insert(0, strides[0] * n)
        self._strides = tuple(strides)

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def data_ptr(self) -> int:
        return 0


class _OfflineDriver:
    """As much of triton's driver interface as compiling needs."""

    def __init__(self, architecture: int) -> None:
        self._architecture = architecture

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._architecture, 32)

    def get_current_device(self) -> int:
        return -self._architecture  # Triton keeps compiled kernels by device: never mix two

    def get_current_stream(self, device: int) -> int:
        return 0


@contextlib.contextmanager
def stand_in(architecture: int) -> Iterator[None]:
    """Inside, Triton compiles for sm_<architecture>, GPU or none. `architecture` is 80, 90, …"""
    from triton.runtime import driver

    with _LOCK:
        before = driver._active
        driver.set_active(_OfflineDriver(architecture))
        try:
            yield
        finally:
            driver._active = before
