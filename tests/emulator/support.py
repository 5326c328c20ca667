"""Small kernels for the tests of the emulator: PTX by hand, or CUDA through nvcc."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
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

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"


def ptx_kernel(body: str, parameters: int = 2, name: str = "kernel", globals_: str = "") -> str:
    """An entry with `parameters` pointers, loaded into %p0, %p1, ...; lane and thread in %lane and
    %t; registers %r0-99 (b32), %x0-99 (b64), %f0-99 (f32), %h0-99 (b16), %d0-9 (f64), %q0-29."""
    declared = ", ".join(f".param .u64 p{i}" for i in range(parameters))
    loads = "\n".join(f"ld.param.u64 %p{i}, [p{i}];" for i in range(parameters))
    return f"""{HEADER}{globals_}
.visible .entry {name}({declared})
{{
.reg .b32 %r<100>; .reg .b64 %x<100>; .reg .f32 %f<100>; .reg .b16 %h<100>; .reg .f64 %d<10>;
.reg .pred %q<30>; .reg .b64 %p<8>; .reg .b32 %t; .reg .b32 %lane;
{loads}
mov.u32 %t, %tid.x;
mov.u32 %lane, %laneid;
{body}
ret;
}}
"""


def run(
    kernel: EmulatedKernel,
    arrays: Sequence[Any],
    *,
    block: int = 32,
    grid: int = 1,
    shared_bytes: int = 0,
    options: LaunchOptions | None = None,
) -> LaunchReport:
    """Launches with the arrays' addresses as parameters and their memory registered."""
    return kernel.launch(
        (grid, 1, 1),
        (block, 1, 1),
        shared_bytes,
        [struct.pack("<Q", array.ctypes.data) for array in arrays],
        [memory_range_of(array, f"array {i}") for i, array in enumerate(arrays)],
        options=options,
    )


def run_ptx(body: str, arrays: Sequence[Any], globals_: str = "", **launch: Any) -> LaunchReport:
    ptx = ptx_kernel(body, parameters=len(arrays), globals_=globals_)
    return run(compile_kernel(ptx, "kernel"), arrays, **launch)


def aligned(shape: tuple[int, ...] | int, dtype: Any) -> Any:
    """A zeroed array on a 64-byte boundary."""
    count = int(np.prod(shape))
    n_bytes = count * np.dtype(dtype).itemsize
    buffer = np.zeros(n_bytes + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    return buffer[start : start + n_bytes].view(dtype).reshape(shape)


@functools.cache
def cuda_to_ptx(source: str) -> str:
    """nvcc's PTX of a CUDA source, with the flags of the project's kernels, from the cache if it
    is there."""
    return source_ptx(source, "test_kernel", "compute_80")


def cuda_kernel(source: str, entry: str = "kernel") -> EmulatedKernel:
    return compile_kernel(cuda_to_ptx(source), entry)
