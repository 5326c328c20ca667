"""The kernel compiled for a GPU that need not be there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..triton_kit.offline.compiling import own_cache, torch_name
from ..triton_kit.offline.driver import StandInTensor, stand_in
from ..triton_kit.offline.resources import Compiled, inspect

if TYPE_CHECKING:
    from .config import GluonForwardConfig


def compile_gluon(
    config: GluonForwardConfig, *, ping_pong: bool, dtype: str, d_head: int, causal: bool
) -> Compiled:
    """The warp-specialised kernel for sm_90a. `dtype` is fp16 or bf16. Raises ValueError for a
    configuration that cannot be built. The sizes of the problem are no part of the code."""
    from ..triton_kit.calls import Problem
    from .descriptors import kernel_arguments
    from .kernel import attention
    from .launch import check_config

    check_config(config, ping_pong, d_head)
    tensor = StandInTensor((2, 1000, 4, d_head), torch_name(dtype))
    problem = Problem(2, 1000, 1000, 4, 4, d_head, causal, d_head**-0.5)
    arguments, constants, _ = kernel_arguments(
        config, problem, ping_pong, tensor, tensor, tensor, tensor
    )
    with stand_in(90), own_cache():
        return inspect(attention.warmup(*arguments, **constants, grid=(1,)), 90)
