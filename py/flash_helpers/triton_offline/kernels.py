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

_DTYPES = {"fp16": "float16", "bf16": "bfloat16"}


def compile_gluon(
    config: GluonForwardConfig, *, ping_pong: bool, dtype: str, d_head: int, causal: bool
) -> Compiled:
    """The warp-specialised kernel for sm_90a. `dtype` is fp16 or bf16. Raises ValueError for a
    configuration that cannot be built. The sizes of the problem are no part of the code."""
    from flash_attention.gluon.config import problems
    from flash_attention.gluon.descriptors import kernel_arguments
    from flash_attention.gluon.kernel import attention
    from flash_attention.triton_calls import Problem

    if reasons := problems(config, d_head, ping_pong):
        raise ValueError(f"{config} cannot be built: {'; '.join(reasons)}")
    tensor = StandInTensor((2, 1000, 4, d_head), _torch_name(dtype))
    problem = Problem(2, 1000, 1000, 4, 4, d_head, causal, d_head**-0.5)
    arguments, constants, _ = kernel_arguments(
        config, problem, ping_pong, tensor, tensor, tensor, tensor
    )
    with stand_in(90), _own_cache():
        return inspect(attention.warmup(*arguments, **constants, grid=(1,)), 90)


def compile_tl(
    config: object, *, dtype: str, d_head: int, causal: bool, architecture: int
) -> Compiled:
    raise NotImplementedError


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
