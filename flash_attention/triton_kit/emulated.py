"""CPU tensors: the PTX that Triton makes of a kernel, executed by the emulator, with its race
detector on (flash_helpers/emulator). Slow: for tests. Needs Triton, which compiles without a GPU,
and a C++ compiler."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from flash_helpers.kernels.architecture import EMULATED_MULTIPROCESSORS

from .offline import Compiled, compile_op
from .op import C, Op, P

if TYPE_CHECKING:
    from flash_helpers.emulator import LaunchOptions, LaunchReport, TritonKernel


def run(
    op: Op[C, P], config: C, problem: P, tensors: Sequence[torch.Tensor],
    options: LaunchOptions | None = None,
) -> None:  # fmt: skip
    """Op.launch for tensors on the CPU, which are checked. `options`: how the emulator runs it,
    without effect on the result. Raises as `compiled` and `launch`."""
    own = [x.contiguous() for x in tensors] if op.contiguous else tensors
    launch(op, compiled(op, config, problem), config, problem, own, options=options)
    for position in op.written:
        if own[position] is not tensors[position]:
            tensors[position].copy_(own[position])


def compiled(op: Op[C, P], config: C, problem: P, architecture: int | None = None) -> Compiled:
    """compile_op()'s kernel, asked for once a process."""
    config, problem = op.code(config, problem)
    return _compiled(op, config, problem, architecture)


@lru_cache(maxsize=256)
def _compiled(op: Op[C, P], config: C, problem: P, architecture: int | None) -> Compiled:
    return compile_op(op, config, problem, architecture=architecture)


def launch(
    op: Op[C, P], kernel: TritonKernel, config: C, problem: P, tensors: Sequence[torch.Tensor], *,
    blocks: int | None = None, options: LaunchOptions | None = None,
) -> LaunchReport:  # fmt: skip
    """Runs `kernel`, which is `compiled` for this problem. `blocks`: of the grid; by default those
    of a small GPU. Raises the emulator's KernelError for a race, an access out of bounds or a
    deadlock."""
    from flash_helpers.emulator import launch_triton

    grid = (blocks, 1, 1) if blocks else op.grid(config, problem, EMULATED_MULTIPROCESSORS)
    arguments = op.arguments(config, problem, tensors)
    op.note(config, problem, kernel, grid, arguments)
    x, y, z = grid
    size = op.cluster(config, problem)
    return launch_triton(
        kernel, (size * x, y, z), arguments, written=op.written, cluster=size, options=options
    )
