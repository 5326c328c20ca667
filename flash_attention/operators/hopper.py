"""What the operators' persistent kernels for Hopper have in common: the limits of their tiles, the
GPU that they are for, and the descriptors that TMA reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

HOPPER = (9, 0)
STEP = 8  # of 16-bit numbers: the 16 bytes at whose multiples TMA wants rows to begin
BARRIER_BYTES = 1024  # mbarriers, and what Triton keeps beside them
SHARED_BYTES = 227 * 1024
_MOST_ELEMENTS = 2**15  # of a tile: 256 registers of each thread of two warpgroups


class Tiles(Protocol):
    """A persistent kernel's configuration."""

    @property
    def BLOCK_M(self) -> int: ...
    @property
    def BLOCK_N(self) -> int: ...
    @property
    def GROUP_M(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...


def tile_problems(config: Tiles, allowed: Mapping[str, Sequence[int]]) -> list[str]:
    """Why a kernel cannot have these tiles, as sentences. `allowed`: the values of its fields."""
    found = [
        f"{name} {getattr(config, name)}: allowed are {', '.join(map(str, values))}"
        for name, values in allowed.items()
        if getattr(config, name) not in values
    ]
    if config.GROUP_M < 1:
        found.append(f"GROUP_M {config.GROUP_M}: at least 1")
    if config.BLOCK_M * config.BLOCK_N > _MOST_ELEMENTS:
        found.append("tiles of 256 x 256: a thread has no 256 registers for the product")
    if (size := config.shared_bytes) > SHARED_BYTES:
        found.append(f"{size} bytes of shared memory: at most {SHARED_BYTES} are possible")
    return found


def check_hopper(device: torch.device, argument: str, kernel: str) -> None:
    """Raises ValueError for the GPU of an argument that is no Hopper."""
    found = torch.cuda.get_device_capability(device)
    if found != HOPPER:
        major, minor = found
        raise ValueError(f"{argument} is on a GPU of sm_{major}{minor}: {kernel} is for 90")


def descriptor(
    tensor: Any, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int]
) -> Any:
    """What TMA reads or writes a tensor of these sizes and strides by, a box at a time."""
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    dtype = getattr(gl, str(tensor.dtype).removeprefix("torch."))
    layout = gl.NVMMASharedLayout.get_default_for(list(box), dtype)
    return TensorDescriptor(tensor, list(sizes), list(strides), list(box), layout)
