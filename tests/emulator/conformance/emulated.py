"""Runs the suite in the emulator."""

from __future__ import annotations

import functools
from typing import Any

from flash_helpers.emulator import compile_kernel, memory_range_of

from ..support import aligned
from .micro_kernel import HEADER, MicroKernels
from .suite import suite


@functools.cache
def outputs() -> dict[str, Any]:
    """Output buffers by entry."""
    return {kernels.entry: run(kernels) for kernels in suite()}


def run(kernels: MicroKernels) -> Any:
    inputs, out = (aligned(n, "u1") for n in (kernels.inputs.nbytes, kernels.out_bytes))
    inputs[:], out[:] = kernels.inputs, 0xEE
    compile_kernel(HEADER + kernels.ptx, kernels.entry).launch(
        (kernels.grid, 1, 1),
        (kernels.block, 1, 1),
        0,
        [*(a.ctypes.data.to_bytes(8, "little") for a in (inputs, out)), *kernels.arguments],
        [memory_range_of(inputs, "inputs", writable=False), memory_range_of(out, "out")],
    )
    return out
