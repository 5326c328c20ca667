"""All micro-kernels of sm_90a, run in the emulator or on a GPU."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

from flash_helpers.emulator import compile_kernel, memory_range_of, pack_tensor_map

from ...conformance import suite as core
from ...conformance.device import Device
from ...conformance.forms import forms_of
from ...conformance.micro_kernel import Case, MicroKernels
from ...conformance.suite import KernelCase
from ...support import aligned
from .copy_kernels import load_kernels, plain_kernels, store_kernels
from .hopper_kernel import HEADER, HopperKernels, MapSpec
from .reduction_kernels import reduction_kernels
from .triton_kernels import triton_arithmetic, triton_copies, triton_kernels
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
        *load_kernels(),
        *store_kernels(),
        plain_kernels(),
        reduction_kernels(),
        stmatrix_kernels(),
        elect_kernels(),
        mbarrier_kernels(),
        setmaxnreg_kernels(),
        other_kernels(),
        triton_kernels(),
        triton_copies(),
        triton_copies("cta"),
        triton_arithmetic(),
    )


def all_cases() -> list[KernelCase]:
    return [(kernels, case) for kernels in suite() for case in kernels.cases]


@functools.cache
def forms_under_test() -> frozenset[str]:
    """All that occur in a micro-kernel, also on the way to its recorded answer."""
    every = "\n".join(kernels.ptx for kernels in suite())
    return frozenset({case.form for _, case in core.all_cases()} | set(forms_of(HEADER + every)))


# Micro-kernels that came after the last recording. Whoever records next takes them off the list,
# which a test asks for.
UNANSWERED: frozenset[str] = frozenset()


def answered_forms(answers: core.Answers, shared: core.Answers) -> set[str]:
    """All that occur on the way to a recorded answer; `shared`: those of the other suite."""
    forms = {case.form for kernels, case in core.all_cases() if answered(shared, kernels, case)}
    for kernels in suite():
        open_forms = {case.form for case in kernels.cases if not answered(answers, kernels, case)}
        if len(open_forms) < len({case.form for case in kernels.cases}):
            forms |= set(forms_of(HEADER + kernels.ptx)) - open_forms
    return forms


def answered(answers: core.Answers, kernels: MicroKernels, case: Case) -> bool:
    return answers.get(kernels, case) is not None


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

    def parameters(self, kernels: MicroKernels, pointers: list[ctypes.c_uint64]) -> list[bytes]:
        assert isinstance(kernels, HopperKernels)
        maps = b"".join(
            self._encode(spec, pointers[spec.of_output].value + spec.start) for spec in kernels.maps
        )
        plain = super().parameters(kernels, pointers)
        return [*plain[:2], *([maps] if maps else []), *plain[2:]]

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
