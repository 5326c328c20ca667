"""From a small .cu of this folder to a launch in the emulator.

Every test takes the folder of the headers as its first argument, so that test_planted_faults.py can
pass a copy with a fault in it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flash_helpers.build.kernel_ptx import source_ptx
from flash_helpers.emulator import (
    EmulatedKernel,
    LaunchOptions,
    LaunchReport,
    compile_kernel,
    memory_range_of,
)
from flash_helpers.kernel_configs import KernelConfig
from tests.emulator.support import aligned

FOLDER = Path(__file__).parent
SM80, SM90 = "compute_80", "compute_90a"


@functools.cache
def device_ptx(
    headers: Path, file: str, architecture: str = SM80, config: KernelConfig | None = None
) -> str:
    """The PTX that nvcc makes of a .cu of this folder, cached. `config` becomes its CONFIG."""
    path = FOLDER / file
    define = f"#define CONFIG {config.to_cpp_struct()}\n" if config else ""
    text = f'{define}#line 1 "tests/device/{file}"\n{path.read_text()}'
    return source_ptx(text, f"device_{path.stem}", architecture, headers)


@functools.cache
def device_kernel(
    headers: Path,
    file: str,
    entry: str = "kernel",
    architecture: str = SM80,
    config: KernelConfig | None = None,
) -> EmulatedKernel:
    return compile_kernel(device_ptx(headers, file, architecture, config), entry)


def with_fault(ptx: str, pattern: str, which: int, count: int, new: str) -> str:
    """`ptx` with `new`, which may name the pattern's groups, in the place of one of the `count`
    places that the pattern has."""
    places = list(re.finditer(pattern, ptx))
    assert len(places) == count
    place = places[which]
    return ptx[: place.start()] + place.expand(new) + ptx[place.end() :]


def entry_text(headers: Path, file: str, entry: str, architecture: str = SM80) -> str:
    """The PTX of one entry."""
    text = device_ptx(headers, file, architecture)
    found = re.search(rf"\.entry {entry}\(.*?^}}", text, re.S | re.M)
    assert found, f"{file} has no entry {entry}"
    return found[0]


def given(values: Any, dtype: Any = None) -> Any:
    """A copy that kernels may only read, on a 64-byte boundary."""
    values = np.asarray(values, dtype)
    array = aligned(values.shape, values.dtype)
    array[...] = values
    array.flags.writeable = False
    return array


def wanted(shape: tuple[int, ...] | int, dtype: Any) -> Any:
    """An array for a kernel to write; until then every byte is 0xEE."""
    array = aligned(shape, dtype)
    array.view(np.uint8)[...] = 0xEE
    return array


def launch(
    kernel: EmulatedKernel,
    *arguments: Any,
    grid: int = 1,
    block: int = 32,
    shared: int = 0,
    memory: Sequence[Any] = (),
    options: LaunchOptions | None = None,
) -> LaunchReport:
    """Launches with these parameters: an array passes its address and registers its memory, an int
    is an int32, bytes are a record. `memory`: arrays that records point to."""
    arrays = [*(item for item in arguments if isinstance(item, np.ndarray)), *memory]
    return kernel.launch(
        (grid, 1, 1),
        (block, 1, 1),
        shared,
        [_parameter(item) for item in arguments],
        [memory_range_of(array, f"array {i}") for i, array in enumerate(arrays)],
        options=options,
    )


def _parameter(value: Any) -> bytes:
    match value:
        case bytes():
            return value
        case np.ndarray():
            return value.ctypes.data.to_bytes(8, "little")
        case np.generic():
            return value.tobytes()
        case bool() | int():
            return int(value).to_bytes(4, "little", signed=True)
    raise TypeError(f"a kernel takes arrays, numpy scalars, ints and bytes, not {value!r}")
