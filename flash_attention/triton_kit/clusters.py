"""Kernels that Triton compiles for single blocks, started in clusters of several: what the blocks
of a cluster tell each other is in the kernel's own text. (With Triton's num_ctas one program would
be all of a cluster.)"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

MOST_BLOCKS = 16  # that Hopper has in one cluster
_PORTABLE = 8  # more of them a kernel must be allowed
_NON_PORTABLE_ALLOWED = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED


def make_clustered(
    kernel: Any, arguments: Sequence[Any], options: dict[str, Any], blocks: int
) -> None:
    """What Triton compiles of `kernel` for these arguments will start in clusters of so many
    blocks, as many clusters as its grid then has. Its code must be for no other number."""
    compiled = kernel.warmup(*arguments, grid=(1,), **options)
    compiled.run  # noqa: B018 (loads it)
    warps, size, shared_bytes = compiled.packed_metadata
    if size == blocks:
        return
    if blocks > _PORTABLE:
        _allow_non_portable(compiled.function)
    compiled.packed_metadata = warps, blocks, shared_bytes


def _allow_non_portable(function: int) -> None:
    status = driver().cuFuncSetAttribute(ctypes.c_void_p(function), _NON_PORTABLE_ALLOWED, 1)
    if status:
        raise RuntimeError(f"cuFuncSetAttribute returned {status}: no clusters of more than 8")


@cache
def driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")
