"""CPU tensors: the PTX of the same kernel, executed by the emulator."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.kernels.architecture import EMULATED_MULTIPROCESSORS
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.registry import family_of

from .checks.arguments import Plan
from .checks.memory import byte_range

if TYPE_CHECKING:
    from flash_helpers.emulator import EmulatedKernel


def launch(
    plan: Plan,
    args: bytes,
    inputs: dict[str, torch.Tensor],
    outputs: dict[str, torch.Tensor],
) -> None:
    """Runs the plan's kernel to its end. `args` is the argument record, as for the GPU."""
    from flash_helpers.emulator import MemoryRange

    memory = []
    for tensors, writable in ((inputs, False), (outputs, True)):
        for name, tensor in tensors.items():
            begin, end = byte_range(tensor)
            memory.append(MemoryRange(begin, end - begin, writable, name))
    config = plan.config
    grid = min(plan.grid, EMULATED_MULTIPROCESSORS) if config.PERSISTENT else plan.grid
    emulated_kernel(config, plan.variant).launch(
        grid=(grid, 1, 1),
        block=(config.n_threads(), 1, 1),
        shared_bytes=config.smem_bytes(),
        params=[family_of(config).launch_arguments(config, args)],
        memory=memory,
    )


@lru_cache(maxsize=256)
def emulated_kernel(config: KernelConfig, variant: Variant | None = None) -> EmulatedKernel:
    """A kernel of one configuration (by default the first), compiled for the emulator (from its
    cache if it was before)."""
    from flash_helpers.emulator import compile_kernel

    variant = variant or config.first_variant()
    return compile_kernel(kernel_ptx(config, variant), config.symbol(variant))
