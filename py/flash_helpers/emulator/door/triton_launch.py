"""Launches kernels that Triton compiled, with the parameters that its own launcher would pass.

A kernel takes its arguments, without constants, in order, then two pointers to scratch memory.
A tensor descriptor made on the host becomes its tensor map, 32-bit sizes and 64-bit strides. Triton
itself is not needed here: arguments are numpy arrays or torch tensors on the CPU, numbers, and
descriptors of either.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import InvalidLaunchError
from ..sm90.tensor_map import SWIZZLES, pack_tensor_map
from .launch import (
    EmulatedKernel,
    LaunchOptions,
    LaunchReport,
    MemoryRange,
    compile_kernel,
)
from .shape import Dim3

_WARP = 32
_SCRATCH_ALIGN = 128  # bytes
_FLOATS = {2: "e", 4: "f", 8: "d"}  # 2: fp16; a bf16 number is passed as its bits, in two bytes


class TritonKernel(Protocol):
    """What a compilation leaves; the names in brackets are those of Triton's metadata."""

    @property
    def ptx(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def n_warps(self) -> int: ...  # of the whole block, all partitions (num_warps)
    @property
    def shared_bytes(self) -> int: ...  # (shared)
    @property
    def descriptors(self) -> Sequence[Mapping[str, Any]]: ...  # (tensordesc_meta)
    @property
    def scratch_bytes(self) -> int: ...  # of each block (global_scratch_size)


@dataclass(frozen=True)
class Descriptor:
    """A tensor in memory, outermost dimension first; strides in elements, the last is 1. Triton's
    own TensorDescriptor does as well."""

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    padding: str = "zero"

    @classmethod
    def of(cls, array: Any) -> Descriptor:
        _, strides, _ = _layout(array)
        return cls(array, tuple(array.shape), strides)


def launch_triton(
    compiled: TritonKernel,
    grid: Dim3,
    arguments: Sequence[Any],
    *,
    written: Collection[int] | None = None,
    cluster: int | None = None,
    options: LaunchOptions | None = None,
) -> LaunchReport:
    """Runs the grid. `arguments` are all but the constants; `written` has the positions of
    those that the kernel may write to (None: any), `cluster` the blocks of one (None: as declared).
    InvalidLaunchError where Triton or the driver would refuse; a KernelError as any kernel's."""
    kernel = compile_kernel(compiled.ptx, compiled.name)
    scratch = bytearray(compiled.scratch_bytes * grid[0] * grid[1] * grid[2] + _SCRATCH_ALIGN)
    scratch_range = _scratch_range(scratch)
    params = _Parameters(kernel, list(compiled.descriptors))
    for position, argument in enumerate(arguments):
        params.add(argument, written is None or position in written)
    for address in (scratch_range.address if compiled.scratch_bytes else 0, 0):
        params.values.append(struct.pack("<Q", address))
    if params.descriptors:
        raise InvalidLaunchError(
            f"{kernel.name}: {len(params.descriptors)} descriptors fewer than it takes"
        )
    block = (_WARP * compiled.n_warps, 1, 1)
    memory = [*params.memory, scratch_range]
    return kernel.launch(
        grid, block, compiled.shared_bytes, params.values, memory, cluster=cluster, options=options
    )


def _scratch_range(scratch: bytearray) -> MemoryRange:
    start = ctypes.addressof(ctypes.c_char.from_buffer(scratch))
    aligned = -(-start // _SCRATCH_ALIGN) * _SCRATCH_ALIGN
    return MemoryRange(aligned, len(scratch) - _SCRATCH_ALIGN, True, "scratch")


class _Parameters:
    """Values and memory, as they are collected; `descriptors` are what is left of the metadata."""

    def __init__(self, kernel: EmulatedKernel, descriptors: list[Mapping[str, Any]]) -> None:
        self.name = kernel.name
        self.sizes = kernel.parameter_sizes
        self.descriptors = descriptors
        self.values: list[bytes] = []
        self.memory: list[MemoryRange] = []

    def add(self, argument: Any, writable: bool) -> None:
        if (
            hasattr(argument, "base")
            and hasattr(argument, "shape")
            and hasattr(argument, "padding")
        ):
            self._descriptor(argument, writable)
        elif hasattr(argument, "shape"):
            self.values.append(struct.pack("<Q", self._register(argument, writable)))
        else:
            self._number(argument)

    def _register(self, array: Any, writable: bool) -> int:
        """The address of an array, whose memory the kernel may then use."""
        address, strides, item = _layout(array)
        steps = [(size - 1) * stride for size, stride in zip(array.shape, strides, strict=True)]
        if min(steps, default=0) < 0:
            raise InvalidLaunchError(f"{self.name}: an array with negative strides {strides}")
        if 0 not in array.shape:
            n_bytes = (sum(steps) + 1) * item
            name = f"argument {len(self.values)}"
            self.memory.append(MemoryRange(address, n_bytes, writable, name))
        return address

    def _number(self, number: Any) -> None:
        place = len(self.values)
        if place >= len(self.sizes):
            raise InvalidLaunchError(f"{self.name}: more arguments than its {len(self.sizes)}")
        n_bytes = self.sizes[place]
        if isinstance(number, bytes):
            self.values.append(number)
        elif isinstance(number, float) and n_bytes in _FLOATS:
            self.values.append(struct.pack(f"<{_FLOATS[n_bytes]}", number))
        elif isinstance(number, int) and -(1 << 8 * n_bytes - 1) <= number < 1 << 8 * n_bytes:
            self.values.append((number % (1 << 8 * n_bytes)).to_bytes(n_bytes, "little"))
        else:
            raise InvalidLaunchError(
                f"{self.name}: {number!r} for parameter {place}, which has {n_bytes} bytes"
            )

    def _descriptor(self, tensor: Any, writable: bool) -> None:
        if not self.descriptors:
            raise InvalidLaunchError(f"{self.name}: more descriptors than it takes")
        meta = self.descriptors.pop(0)
        _, _, item = _layout(tensor.base)
        shape, strides = list(tensor.shape), list(tensor.strides)
        problem = (
            f"rank {len(shape)}, compiled for {len(meta['block_size'])}"
            if not len(shape) == len(strides) == len(meta["block_size"])
            else f"elements of {item} bytes, compiled for {meta['elem_size']}"
            if item != meta["elem_size"]
            else f"strides {strides}: the last must be 1"
            if strides[-1] != 1
            else f"padding {tensor.padding!r}; the emulator fills with zeros"
            if tensor.padding != "zero" or meta["fp4_padded"]
            else ""
        )
        if problem:
            raise InvalidLaunchError(f"{self.name}: a descriptor of {problem}")
        try:
            packed = pack_tensor_map(
                self._register(tensor.base, writable),
                item,
                dims=shape[::-1],
                strides=[item * stride for stride in strides[-2::-1]],
                box=list(meta["block_size"])[::-1],
                swizzle=SWIZZLES[meta["swizzle"]],
            )
        except ValueError as error:
            raise InvalidLaunchError(f"{self.name}: {error}") from None
        self.values += [packed, *(struct.pack("<i", size) for size in shape)]
        self.values += [struct.pack("<q", stride) for stride in strides]


def _layout(array: Any) -> tuple[int, tuple[int, ...], int]:
    """Address, strides in elements, and bytes of an element; of numpy arrays or torch tensors."""
    if hasattr(array, "data_ptr"):
        if array.device.type != "cpu":
            raise InvalidLaunchError(f"a tensor on {array.device}: the emulator runs on the CPU")
        return array.data_ptr(), tuple(array.stride()), array.element_size()
    item = int(array.itemsize)
    return array.ctypes.data, tuple(stride // item for stride in array.strides), item
