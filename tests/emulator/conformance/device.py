"""Runs the suite on a GPU through the CUDA driver alone: ctypes and nvcc."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from .micro_kernel import MicroKernels


def compile_cubin(ptx: str, architecture: str) -> tuple[bytes, str]:
    """The cubin, and what nvcc says of its version."""
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "suite.ptx"), Path(folder, "suite.cubin")
        source.write_text(ptx)
        command = [nvcc, "-cubin", f"-arch={architecture}", str(source), "-o", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"nvcc does not compile the suite:\n{done.stdout}{done.stderr}")
        return cubin.read_bytes(), version.strip().splitlines()[-1]


class Device:
    """Device 0 of the CUDA driver, with its primary context."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        name = ctypes.create_string_buffer(100)
        self._call("cuDeviceGetName", name, 100, device)
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        capability = []
        for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
            value = ctypes.c_int()
            self._call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
            capability.append(value.value)
        self.name = name.value.decode()
        self.driver = str(version.value)
        self.architecture = "sm_{}{}".format(*capability)

    def load(self, cubin: bytes) -> None:
        self._module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(self._module), ctypes.c_char_p(cubin))

    def run(self, kernels: MicroKernels) -> Any:
        """The output buffer of one entry."""
        function = ctypes.c_void_p()
        name = ctypes.c_char_p(kernels.entry.encode())
        self._call("cuModuleGetFunction", ctypes.byref(function), self._module, name)
        out = np.full(kernels.out_bytes, 0xEE, np.uint8)
        pointers = [self._copy_in(array) for array in (kernels.inputs, out)]
        values = self.parameters(kernels, pointers)
        buffers = [ctypes.create_string_buffer(value, len(value)) for value in values]
        addresses = [ctypes.cast(buffer, ctypes.c_void_p) for buffer in buffers]
        arguments = (ctypes.c_void_p * len(addresses))(*(a.value for a in addresses))
        sizes = [ctypes.c_uint(n) for n in (kernels.grid, 1, 1, kernels.block, 1, 1, 0)]
        self._call("cuLaunchKernel", function, *sizes, None, arguments, None)
        self._call("cuCtxSynchronize")
        size = ctypes.c_size_t(out.nbytes)
        self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(out.ctypes.data), pointers[1], size)
        for pointer in pointers:
            self._call("cuMemFree_v2", pointer)
        return out

    def parameters(self, kernels: MicroKernels, pointers: list[ctypes.c_uint64]) -> list[bytes]:
        return [*(bytes(pointer) for pointer in pointers), *kernels.arguments]

    def _copy_in(self, array: Any) -> ctypes.c_uint64:
        pointer, size = ctypes.c_uint64(), ctypes.c_size_t(array.nbytes)
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), size)
        self._call("cuMemcpyHtoD_v2", pointer, ctypes.c_void_p(array.ctypes.data), size)
        return pointer

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._cuda, function)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(status, ctypes.byref(text))
            raise RuntimeError(f"{function}: {(text.value or b'?').decode()} ({status})")


def run_on_gpu(
    kernels: MicroKernels, device_class: type[Device], header: str, architecture: str = ""
) -> tuple[Any, dict[str, str]]:
    """The output buffer of one entry, and what it was made with. `architecture`: the device's if
    not given."""
    device = device_class()
    architecture = architecture or device.architecture
    cubin, nvcc = compile_cubin(header + kernels.ptx, architecture)
    device.load(cubin)
    about = {"device": device.name, "architecture": architecture,
             "driver": device.driver, "nvcc": nvcc}  # fmt: skip
    return device.run(kernels), about
