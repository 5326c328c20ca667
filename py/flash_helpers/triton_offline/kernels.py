"""The project's kernels, compiled for an architecture that is named."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .driver import StandInTensor, stand_in
from .resources import Compiled, inspect

if TYPE_CHECKING:
    from flash_attention.gluon.config import GluonForwardConfig
    from flash_attention.triton.config import TritonForwardConfig

_DTYPES = {"fp16": "float16", "bf16": "bfloat16"}


def compile_gluon(
    config: GluonForwardConfig, *, ping_pong: bool, dtype: str, d_head: int, causal: bool
) -> Compiled:
    """The warp-specialised kernel for sm_90a. `dtype` is fp16 or bf16. Raises ValueError for a
    configuration that cannot be built. The sizes of the problem are no part of the code."""
    from flash_attention.gluon.descriptors import kernel_arguments
    from flash_attention.gluon.kernel import attention
    from flash_attention.gluon.launch import check_config
    from flash_attention.triton_calls import Problem

    check_config(config, ping_pong, d_head)
    tensor = StandInTensor((2, 1000, 4, d_head), _torch_name(dtype))
    problem = Problem(2, 1000, 1000, 4, 4, d_head, causal, d_head**-0.5)
    arguments, constants, _ = kernel_arguments(
        config, problem, ping_pong, tensor, tensor, tensor, tensor
    )
    with stand_in(90), _own_cache():
        return inspect(attention.warmup(*arguments, **constants, grid=(1,)), 90)


def compile_tl(
    config: TritonForwardConfig, *, dtype: str, d_head: int, causal: bool, architecture: int
) -> Compiled:
    """The plain Triton kernel for sm_<architecture>. `dtype` is fp16 or bf16. Raises ValueError for
    a configuration that cannot be built."""
    from flash_attention.triton.kernel import attention
    from flash_attention.triton.launch import check_config, kernel_arguments
    from flash_attention.triton_calls import Problem

    check_config(config, d_head)
    tensor = StandInTensor((2, 1000, 4, d_head), _torch_name(dtype))
    problem = Problem(2, 1000, 1000, 4, 4, d_head, causal, d_head**-0.5)
    arguments, constants, _ = kernel_arguments(config, problem, tensor, tensor, tensor, tensor)
    with stand_in(architecture), _own_cache():
        return inspect(attention.warmup(*arguments, **constants, grid=(1,)), architecture)


def _torch_name(dtype: str) -> str:
    if dtype not in _DTYPES:
        raise ValueError(f"dtype {dtype}: allowed are {' and '.join(_DTYPES)}")
    return _DTYPES[dtype]


@contextlib.contextmanager
def _own_cache() -> Iterator[None]:
    """Triton's compile cache in a folder that goes away: nothing stale is inspected, and nothing
    stays behind."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder, knobs.cache.scope():
        knobs.cache.dir = folder
        yield
