"""CPU tensors: the PTX that Triton makes of the same kernel, executed by the emulator, with its
race detector on (flash_helpers/emulator). Slow: for tests. Needs Triton, which compiles without a
GPU, and a C++ compiler."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from ..triton_kit.calls import Problem, check_call
from ..triton_kit.versions import require_triton
from .config import HEAD_DIMS, TritonForwardConfig
from .launch import check_config, kernel_arguments

if TYPE_CHECKING:
    from flash_helpers.emulator import LaunchOptions, LaunchReport, TritonKernel

    from ..triton_kit.offline.resources import Compiled

ARCHITECTURE = 80  # mma.sync and cp.async: what every GPU since then runs
_OUTPUT = 3  # position among the kernel's arguments


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    config: TritonForwardConfig | None = None,
    out: torch.Tensor | None = None,
    options: LaunchOptions | None = None,
) -> torch.Tensor:
    """flash_attention.triton.forward for tensors on the CPU. `options`: how the emulator runs it,
    without effect on the result. Raises as that does, and KernelError as `launch`."""
    problem, out = check_call(q, k, v, out, causal, softmax_scale, HEAD_DIMS, "cpu")
    config = check_config(config, problem.d_head)
    require_triton()
    kernel = compiled(config, q.dtype, problem.d_head, causal)
    # The code is for strides that are multiples of 16, which those of a copy are.
    result = out if out.is_contiguous() else torch.empty_like(q).contiguous()
    tensors = (q.contiguous(), k.contiguous(), v.contiguous(), result)
    launch(kernel, config, problem, tensors, options=options)
    return out if result is out else out.copy_(result)


@lru_cache(maxsize=64)
def compiled(
    config: TritonForwardConfig,
    dtype: torch.dtype,
    d_head: int,
    causal: bool,
    architecture: int = ARCHITECTURE,
) -> Compiled:
    """One kernel, compiled once a process. ValueError for what cannot be built."""
    from flash_helpers.base.dtypes import DType

    from .offline import compile_tl

    name = DType.from_torch_dtype(dtype).name.lower()
    return compile_tl(config, dtype=name, d_head=d_head, causal=causal, architecture=architecture)


def launch(
    kernel: TritonKernel,
    config: TritonForwardConfig,
    problem: Problem,
    tensors: Sequence[torch.Tensor],
    options: LaunchOptions | None = None,
) -> LaunchReport:
    """Runs `kernel`, which is `compiled` for this problem, on q, k, v and the output, all
    contiguous. Raises the emulator's KernelError for a race, an access out of bounds or a
    deadlock."""
    from flash_helpers.emulator import launch_triton

    arguments, _, programs = kernel_arguments(config, problem, *tensors)
    return launch_triton(kernel, (programs, 1, 1), arguments, written=[_OUTPUT], options=options)
