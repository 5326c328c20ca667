"""CPU tensors: the PTX of the same kernel, executed by the emulator."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.kernels.contract import KernelConfig
from flash_helpers.kernels.sm90_fwd.config import HopperForwardKernelConfig

from .checks.arguments import Plan
from .checks.memory import byte_range

# As many blocks as a persistent kernel starts here: few, so that each computes several tiles.
MULTIPROCESSORS = 3

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
    from flash_helpers.kernels.sm90_fwd.arguments import pack_hopper_forward_args

    memory = []
    for tensors, writable in ((inputs, False), (outputs, True)):
        for name, tensor in tensors.items():
            begin, end = byte_range(tensor)
            memory.append(MemoryRange(begin, end - begin, writable, name))
    config = plan.config
    grid = plan.grid
    if isinstance(config, HopperForwardKernelConfig):
        args = pack_hopper_forward_args(config, args)
        grid = min(grid, MULTIPROCESSORS)
    emulated_kernel(config, plan.general).launch(
        grid=(grid, 1, 1),
        block=(config.n_threads(), 1, 1),
        shared_bytes=config.smem_bytes(),
        params=[args],
        memory=memory,
    )


@lru_cache(maxsize=256)
def emulated_kernel(config: KernelConfig, general: bool = False) -> EmulatedKernel:
    """The kernel of one configuration (the one for any lengths and the causal mask if `general`),
    compiled for the emulator (from its cache if it was before)."""
    from flash_helpers.emulator import compile_kernel

    return compile_kernel(kernel_ptx(config, general), config.symbol(general))
