"""CPU tensors: the PTX of the same kernel, executed by the emulator."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.kernels.architecture import EMULATED_MULTIPROCESSORS
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.registry import family_of
from flash_helpers.kernels.serve_config import ServeKernelConfig, ServeSizes

from .checks.arguments import Plan
from .checks.backward_arguments import BackwardPlan
from .checks.memory import byte_range

if TYPE_CHECKING:
    from flash_helpers.emulator import EmulatedKernel, MemoryRange


def launch(
    plan: Plan,
    args: bytes,
    inputs: dict[str, torch.Tensor],
    outputs: dict[str, torch.Tensor],
) -> None:
    """Runs the plan's kernel to its end. `args` is the argument record, as for the GPU."""
    memory = _ranges(inputs, writable=False) + _ranges(outputs, writable=True)
    config = plan.config
    grid = min(plan.grid, EMULATED_MULTIPROCESSORS) if config.PERSISTENT else plan.grid
    emulated_kernel(config, plan.variant).launch(
        grid=(grid, 1, 1),
        block=(config.n_threads(), 1, 1),
        shared_bytes=config.smem_bytes(),
        params=[family_of(config).launch_arguments(config, args, plan.variant)],
        memory=memory,
    )


def launch_backward(
    plan: BackwardPlan, inputs: dict[str, torch.Tensor], outputs: dict[str, torch.Tensor]
) -> None:
    """Runs the plan's kernels to their end, one after the other. `outputs` have the names of the
    argument record: those that a kernel does not write, it may only read. Where gradients are to be
    bitwise the same in every run, additions whose order is left open are an error."""
    from flash_helpers.emulator import LaunchOptions

    config = plan.config
    options = LaunchOptions(ordered_sums=config.is_deterministic())
    for variant in config.variants():
        written = {name: x for name, x in outputs.items() if name in config.outputs(variant)}
        grid = config.grid(variant, plan.sizes)
        if not grid or not written:
            continue
        read = inputs | {name: x for name, x in outputs.items() if name not in written}
        emulated_kernel(config, variant).launch(
            grid=(grid, 1, 1),
            block=(config.threads_of(variant), 1, 1),
            shared_bytes=config.smem_of(variant),
            params=[family_of(config).launch_arguments(config, plan.args, variant)],
            memory=_ranges(read, writable=False) + _ranges(written, writable=True),
            options=options,
        )


def launch_serving(
    config: ServeKernelConfig,
    args: bytes,
    sizes: ServeSizes,
    inputs: dict[str, torch.Tensor],
    outputs: dict[str, torch.Tensor],
) -> None:
    """Runs the kernels of a serving call to their end, one after the other; as
    `launch_backward`."""
    for variant in config.variants():
        grid = config.grid(variant, sizes)
        if not grid:
            continue
        if config.PERSISTENT:
            grid = min(grid, EMULATED_MULTIPROCESSORS)
        names = config.outputs(variant, sizes.n_splits)
        tensors = inputs | outputs
        written = {name: x for name, x in tensors.items() if name in names}
        read = {name: x for name, x in tensors.items() if name not in written}
        emulated_kernel(config, variant).launch(
            grid=(grid, 1, 1),
            block=(config.threads_of(variant), 1, 1),
            shared_bytes=config.smem_of(variant),
            params=[family_of(config).launch_arguments(config, args, variant)],
            memory=_ranges(read, writable=False) + _ranges(written, writable=True),
        )


def _ranges(tensors: dict[str, torch.Tensor], *, writable: bool) -> list[MemoryRange]:
    from flash_helpers.emulator import MemoryRange

    bounds = {name: byte_range(tensor) for name, tensor in tensors.items()}
    return [MemoryRange(a, b - a, writable, name) for name, (a, b) in bounds.items()]


@lru_cache(maxsize=256)
def emulated_kernel(config: KernelConfig, variant: Variant | None = None) -> EmulatedKernel:
    """A kernel of one configuration (by default the first), compiled for the emulator (from its
    cache if it was before)."""
    from flash_helpers.emulator import compile_kernel

    variant = variant or config.first_variant()
    return compile_kernel(kernel_ptx(config, variant), config.symbol(variant))
