"""CPU tensors: the PTX that Triton makes of the same kernel, executed by the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ..triton_calls import Problem
from .config import GluonForwardConfig
from .descriptors import kernel_arguments

if TYPE_CHECKING:
    import torch

    from flash_helpers.emulator import LaunchOptions, LaunchReport, TritonKernel
    from flash_helpers.triton_offline import Compiled

# As many blocks as a persistent kernel starts here: few, so that each computes several tiles.
MULTIPROCESSORS = 3
_OUTPUT = 3  # position among the kernel's arguments


@lru_cache(maxsize=64)
def compiled(
    config: GluonForwardConfig, ping_pong: bool, dtype: torch.dtype, d_head: int, causal: bool
) -> Compiled:
    """One kernel, compiled once a process. ValueError for what cannot be built."""
    from flash_helpers.dtypes import DType
    from flash_helpers.triton_offline import compile_gluon

    name = DType.from_torch_dtype(dtype).name.lower()
    return compile_gluon(config, ping_pong=ping_pong, dtype=name, d_head=d_head, causal=causal)


def launch(
    kernel: TritonKernel,
    config: GluonForwardConfig,
    problem: Problem,
    tensors: Sequence[torch.Tensor],
    *,
    ping_pong: bool,
    blocks: int | None = None,
    options: LaunchOptions | None = None,
) -> LaunchReport:
    """Runs `kernel`, which is `compiled` for this problem, on q, k, v and the output. `blocks`: of
    the grid; by default one a tile, or few if the kernel is persistent. Raises the emulator's
    KernelError for a race, an access out of bounds or a deadlock."""
    from flash_helpers.emulator import launch_triton

    arguments, _, tiles = kernel_arguments(config, problem, ping_pong, *tensors)
    few = min(tiles, MULTIPROCESSORS) if config.PERSISTENT else tiles
    grid = (blocks or few, 1, 1)
    return launch_triton(kernel, grid, arguments, written=[_OUTPUT], options=options)
