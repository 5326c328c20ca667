"""CPU tensors: the PTX that Triton makes of the same kernels, executed by the emulator, with its
race detector on (flash_helpers/emulator). Slow: for tests. Needs Triton, which compiles without a
GPU, and a C++ compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from ..triton_kit.calls import Problem, check_call
from ..triton_kit.versions import require_triton
from .config import HEAD_DIMS, GluonForwardConfig
from .launch import check_config

if TYPE_CHECKING:
    from flash_helpers.emulator import LaunchOptions, LaunchReport, TritonKernel

    from ..triton_kit.offline.resources import Compiled

# As many blocks as a persistent kernel starts here: few, so that each computes several tiles.
MULTIPROCESSORS = 3
_OUTPUT = 3  # position among the kernel's arguments


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    ping_pong: bool,
    causal: bool = False,
    softmax_scale: float | None = None,
    config: GluonForwardConfig | None = None,
    out: torch.Tensor | None = None,
    options: LaunchOptions | None = None,
) -> torch.Tensor:
    """flash_attention.gluon.forward for tensors on the CPU. `options`: how the emulator runs it,
    without effect on the result. Raises as that does, and KernelError as `launch`."""
    problem, out = check_call(q, k, v, out, causal, softmax_scale, HEAD_DIMS, "cpu")
    config = check_config(config, ping_pong, problem.d_head)
    require_triton()
    if problem.seqlen_k == 0:
        return out.zero_()
    kernel = compiled(config, ping_pong, q.dtype, problem.d_head, causal)
    launch(kernel, config, problem, (q, k, v, out), ping_pong=ping_pong, options=options)
    return out


def compiled(
    config: GluonForwardConfig, ping_pong: bool, dtype: torch.dtype, d_head: int, causal: bool
) -> Compiled:
    """One kernel, compiled once a process. ValueError for what cannot be built."""
    return _compiled(replace(config, PERSISTENT=False), ping_pong, dtype, d_head, causal)


@lru_cache(maxsize=64)
def _compiled(
    config: GluonForwardConfig, ping_pong: bool, dtype: torch.dtype, d_head: int, causal: bool
) -> Compiled:
    from flash_helpers.base.dtypes import DType

    from .offline import compile_gluon

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

    from .descriptors import kernel_arguments

    arguments, _, tiles = kernel_arguments(config, problem, ping_pong, *tensors)
    few = min(tiles, MULTIPROCESSORS) if config.PERSISTENT else tiles
    grid = (blocks or few, 1, 1)
    return launch_triton(kernel, grid, arguments, written=[_OUTPUT], options=options)
