"""All micro-kernels of sm_90a, run in the emulator or on a GPU."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flash_helpers.emulator import compile_kernel, memory_range_of, pack_tensor_map

from ...conformance import suite as core
from ...conformance.device import Device, compile_cubin
from ...conformance.forms import forms_of
from ...conformance.micro_kernel import Case, MicroKernels
from ...support import aligned
from .copy_kernels import load_kernels, plain_kernels, store_kernels
from .hopper_kernel import HEADER, HopperKernels, MapSpec
from .triton_kernels import triton_copies, triton_kernels
from .warp_kernels import (
    elect_kernels,
    mbarrier_kernels,
    other_kernels,
    setmaxnreg_kernels,
    stmatrix_kernels,
)
from .wgmma_kernels import layout_kernels, value_kernels

ANSWERS = Path(__file__).parent / "answers.npz"


@functools.cache
def suite() -> tuple[HopperKernels, ...]:
    return (
        *layout_kernels(),
        *value_kernels(),
        load_kernels(),
        store_kernels(),
        plain_kernels(),
        stmatrix_kernels(),
        elect_kernels(),
        mbarrier_kernels(),
        setmaxnreg_kernels(),
        other_kernels(),
        triton_kernels(),
        triton_copies(),
    )


def all_cases() -> list[tuple[MicroKernels, Case]]:
    return [(kernels, case) for kernels in suite() for case in kernels.cases]


@functools.cache
def forms_under_test() -> frozenset[str]:
    """All that occur in a micro-kernel, also on the way to its recorded answer."""
    every = "\n".join(kernels.ptx for kernels in suite())
    return frozenset({case.form for _, case in core.all_cases()} | set(forms_of(HEADER + every)))


@functools.cache
def emulated(entry: str) -> Any:
    """The output buffer of one entry."""
    (kernels,) = (item for item in suite() if item.entry == entry)
    inputs, out = (aligned(n, "u1") for n in (kernels.inputs.nbytes, kernels.out_bytes))
    inputs[:], out[:] = kernels.inputs, 0xEE
    addresses = {False: inputs.ctypes.data, True: out.ctypes.data}
    maps = b"".join(
        pack_tensor_map(
            addresses[spec.of_output] + spec.start,
            spec.element_bytes,
            spec.dims,
            spec.strides,
            spec.box,
            swizzle=spec.swizzle,
        )
        for spec in kernels.maps
    )
    compile_kernel(HEADER + kernels.ptx, kernels.entry).launch(
        (kernels.grid, 1, 1),
        (kernels.block, 1, 1),
        0,
        [
            *(a.to_bytes(8, "little") for a in addresses.values()),
            *([maps] if maps else []),
            *kernels.arguments,
        ],
        [memory_range_of(inputs, "inputs", writable=False), memory_range_of(out, "out")],
    )
    return out


_DATA_TYPES = {1: 0, 2: 1, 4: 2, 8: 4}  # CU_TENSOR_MAP_DATA_TYPE_UINT8, _UINT16, _UINT32, _UINT64
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}


class HopperDevice(Device):
    """Device 0, with tensor maps."""

    def run_hopper(self, kernels: HopperKernels) -> Any:
        """The output buffer of one entry."""
        function = ctypes.c_void_p()
        name = ctypes.c_char_p(kernels.entry.encode())
        self._call("cuModuleGetFunction", ctypes.byref(function), self._module, name)
        out = np.full(kernels.out_bytes, 0xEE, np.uint8)
        pointers = [self._copy_in(array) for array in (kernels.inputs, out)]
        maps = b"".join(
            self._encode(spec, pointers[spec.of_output].value + spec.start) for spec in kernels.maps
        )
        values = [
            *(bytes(pointer) for pointer in pointers),
            *([maps] if maps else []),
            *kernels.arguments,
        ]
        buffers = [ctypes.create_string_buffer(value, len(value)) for value in values]
        arguments = (ctypes.c_void_p * len(buffers))(*(ctypes.addressof(b) for b in buffers))
        sizes = [ctypes.c_uint(n) for n in (kernels.grid, 1, 1, kernels.block, 1, 1, 0)]
        self._call("cuLaunchKernel", function, *sizes, None, arguments, None)
        self._call("cuCtxSynchronize")
        size = ctypes.c_size_t(out.nbytes)
        self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(out.ctypes.data), pointers[1], size)
        for pointer in pointers:
            self._call("cuMemFree_v2", pointer)
        return out

    def _encode(self, spec: MapSpec, address: int) -> bytes:
        """What cuTensorMapEncodeTiled makes of a map."""
        rank = len(spec.dims)
        buffer = ctypes.create_string_buffer(128 + 64)
        start = -ctypes.addressof(buffer) % 64
        self._call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(ctypes.addressof(buffer) + start),
            ctypes.c_int(_DATA_TYPES[spec.element_bytes]),
            ctypes.c_uint(rank),
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*spec.dims),
            (ctypes.c_uint64 * rank)(*spec.strides, 0),
            (ctypes.c_uint32 * rank)(*spec.box),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            ctypes.c_int(0),  # no interleaving
            ctypes.c_int(_SWIZZLES[spec.swizzle]),
            ctypes.c_int(0),  # no promotion of L2 sectors
            ctypes.c_int(0),  # zeros outside
        )
        return buffer.raw[start : start + 128]


def run_on_gpu(kernels: Sequence[HopperKernels]) -> tuple[dict[str, Any], dict[str, str]]:
    """Output buffers by entry, and what they were made with."""
    device = HopperDevice()
    text = HEADER + "\n".join(item.ptx for item in kernels)
    cubin, nvcc = compile_cubin(text, "sm_90a")
    device.load(cubin)
    outputs = {item.entry: device.run_hopper(item) for item in kernels}
    about = {"device": device.name, "architecture": "sm_90a",
             "driver": device.driver, "nvcc": nvcc}  # fmt: skip
    return outputs, about
