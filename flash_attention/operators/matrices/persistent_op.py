"""The persistent kernel for Hopper as an Op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from ...triton_kit.op import Grid, StandInTensor, Work
from ..hopper import BARRIER_BYTES, STEP, check_hopper, descriptor, tile_problems
from ..launching import Operator
from .op import MatmulCall, TiledMatmul

_GROUPS = 2


@dataclass(frozen=True)
class PersistentConfig:
    """Tiles of BLOCK_M x BLOCK_N elements, shared by two warpgroups; BUFFERS steps of BLOCK_K in
    shared memory; GROUP_M rows of tiles share operands in the L2 cache."""

    BLOCK_M: int = 128
    BLOCK_N: int = 256
    BLOCK_K: int = 64
    GROUP_M: int = 8
    BUFFERS: int = 4

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def tiles(self, m: int, n: int) -> int:
        return -(-m // self.BLOCK_M) * -(-n // self.BLOCK_N)

    @property
    def shared_bytes(self) -> int:
        """Of the operands' places, and of half a tile of the output."""
        operands = self.BUFFERS * (self.BLOCK_M + self.BLOCK_N) * self.BLOCK_K
        return 2 * (operands + self.BLOCK_M * self.BLOCK_N // 2) + BARRIER_BYTES


@dataclass(frozen=True)
class PersistentMatmul(Operator[PersistentConfig, MatmulCall]):
    """v5. The tensors are a, b and the output, of 16-bit numbers, their rows (or columns) at
    multiples of 16 bytes."""

    name = "matmul-persistent"
    config_type = PersistentConfig
    written = (2,)
    architecture = 90
    contiguous = False

    def kernel(self) -> Any:
        from .persistent import persistent

        return persistent

    def space(self, call: MatmulCall, architecture: int) -> list[PersistentConfig]:
        shapes = ((128, 256, 64, 8, 4), (128, 256, 64, 16, 4), (256, 128, 64, 8, 4),
                  (128, 128, 64, 8, 6), (128, 128, 128, 8, 3))  # fmt: skip
        return [PersistentConfig(*shape) for shape in shapes]

    def problems(self, config: PersistentConfig, call: MatmulCall) -> list[str]:
        allowed = {"BLOCK_M": (128, 256), "BLOCK_N": (128, 256), "BLOCK_K": (64, 128),
                   "BUFFERS": range(2, 9)}  # fmt: skip
        return tile_problems(config, allowed)

    def arguments(
        self, config: PersistentConfig, call: MatmulCall, tensors: Sequence[Any]
    ) -> list[Any]:
        a, b, out = tensors
        rows = config.BLOCK_M // _GROUPS
        described = [
            _descriptor(a, (call.m, call.k), call.strides[0], (rows, config.BLOCK_K), call.rows[0]),
            _descriptor(
                b, (call.k, call.n), call.strides[1], (config.BLOCK_K, config.BLOCK_N), call.rows[1]
            ),
            _descriptor(out, (call.m, call.n), call.strides[3], (rows, config.BLOCK_N // 2), True),
        ]
        return [*described, call.m, call.n, call.k]

    def constants(self, config: PersistentConfig, call: MatmulCall) -> dict[str, Any]:
        return {"A_ROWS": call.rows[0], "B_ROWS": call.rows[1], **config.as_dict(), "num_warps": 4}

    def grid(self, config: PersistentConfig, call: MatmulCall, processors: int) -> Grid:
        return min(config.tiles(call.m, call.n), processors), 1, 1

    def stand_ins(self, call: MatmulCall) -> Sequence[StandInTensor]:
        return [StandInTensor((128, 128), call.dtype)] * 3

    def code(
        self, config: PersistentConfig, call: MatmulCall
    ) -> tuple[PersistentConfig, MatmulCall]:
        return config, replace(call, m=128, n=128, k=128, strides=(128, 128, 0, 128))

    def key(self, call: MatmulCall) -> dict[str, Any]:
        return TiledMatmul().key(call)

    def work(self, call: MatmulCall) -> Work:
        return TiledMatmul().work(call)

    def check_call(self, call: MatmulCall) -> None:
        """Raises ValueError for what TMA or the tensor cores do not take."""
        if call.item != 2:
            raise ValueError(
                "a has dtype torch.float32: the persistent kernel takes torch.float16 and "
                "torch.bfloat16"
            )
        for name, stride in zip(("a", "b", "residual", "out"), call.strides, strict=True):
            if stride % STEP:
                raise ValueError(
                    f"{name} has rows (or columns) {stride} elements apart: the persistent kernel "
                    f"needs a multiple of {STEP}"
                )
        if not call.aligned:
            raise ValueError(
                "a, b or out does not begin at a multiple of 16 bytes, as the persistent kernel "
                "needs it"
            )

    def check_device(self, device: torch.device) -> None:
        """Raises ValueError for a GPU that is no Hopper."""
        check_hopper(device, "a", "the persistent kernel")


def _descriptor(
    tensor: Any, shape: tuple[int, int], stride: int, box: tuple[int, int], rows: bool
) -> Any:
    """Of a matrix, or of its transpose where its columns are contiguous: TMA wants a last dimension
    without gaps."""
    sizes, boxes = (shape, box) if rows else (shape[::-1], box[::-1])
    return descriptor(tensor, sizes, [sizes[1] if sizes[0] == 1 else stride, 1], boxes)
