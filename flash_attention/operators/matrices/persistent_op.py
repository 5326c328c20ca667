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
# Of the eight parts of a tile, where fewer fit into the registers than by default.
_HELD = {"gelu_tanh": 5, "gelu_erf": 4}


@dataclass(frozen=True)
class PersistentConfig:
    """Tiles of BLOCK_M x BLOCK_N elements, shared by two warpgroups; BUFFERS steps of BLOCK_K in
    shared memory; GROUP_M rows of tiles share operands in the L2 cache. HELD of the PARTS of a tile
    are finished while the next one is multiplied, one for every second step of it."""

    BLOCK_M: int = 128
    BLOCK_N: int = 256
    BLOCK_K: int = 64
    GROUP_M: int = 16
    BUFFERS: int = 4
    PARTS: int = 8
    HELD: int = 6

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def tiles(self, m: int, n: int) -> int:
        return -(-m // self.BLOCK_M) * -(-n // self.BLOCK_N)

    @property
    def held_k(self) -> int:
        """The columns of a whose steps finish the parts of the tile before."""
        return 2 * self.HELD * self.BLOCK_K

    @property
    def shared_bytes(self) -> int:
        """Of the operands' places, of two parts of the output, and of a bias for each group."""
        operands = self.BUFFERS * (self.BLOCK_M + self.BLOCK_N) * self.BLOCK_K
        parts = 2 * self.BLOCK_M * self.BLOCK_N // self.PARTS
        return 2 * (operands + parts) + 4 * _GROUPS * self.BLOCK_N + BARRIER_BYTES


@dataclass(frozen=True)
class PersistentMatmul(Operator[PersistentConfig, MatmulCall]):
    """v5, and v4 of large products. The tensors are a, b, the output and the bias (a where there is
    none), of 16-bit numbers, rows (or columns) of matrices at multiples of 16 bytes."""

    name = "matmul-persistent"
    config_type = PersistentConfig
    written = (2,)
    architecture = 90
    contiguous = False

    def kernel(self) -> Any:
        from .persistent import persistent

        return persistent

    def space(self, call: MatmulCall, architecture: int) -> list[PersistentConfig]:
        shapes = ((128, 256, 64, 16, 4), (128, 256, 64, 8, 4), (256, 128, 64, 8, 4, 4, 2),
                  (128, 128, 64, 8, 6, 4, 2), (128, 128, 128, 8, 3, 4, 2))  # fmt: skip
        found = [PersistentConfig(*shape) for shape in shapes]
        # GELU needs more registers; without anything to compute four are faster.
        plain = not call.bias and call.activation == "none"
        most = 4 if plain else _HELD.get(call.activation, PersistentConfig.HELD)
        # A part for every second step, and one step more.
        return [replace(c, HELD=min(c.HELD, most, (call.k - 1) // (2 * c.BLOCK_K))) for c in found]

    def problems(self, config: PersistentConfig, call: MatmulCall) -> list[str]:
        allowed = {"BLOCK_M": (128, 256), "BLOCK_N": (128, 256), "BLOCK_K": (64, 128),
                   "BUFFERS": range(2, 9)}  # fmt: skip
        found = tile_problems(config, allowed)
        if config.PARTS not in (2, 4, 8) or not 0 <= config.HELD < config.PARTS:
            found.append(
                f"{config.HELD} of {config.PARTS} parts held: there are 2, 4 or 8, and one is not"
            )
        elif call.k <= config.held_k:
            found.append(f"{config.HELD} parts held: k is {call.k}, at most {config.held_k}")
        return found

    def arguments(
        self, config: PersistentConfig, call: MatmulCall, tensors: Sequence[Any]
    ) -> list[Any]:
        a, b, out, bias = tensors
        rows = config.BLOCK_M // _GROUPS
        described = [
            _descriptor(a, (call.m, call.k), call.strides[0], (rows, config.BLOCK_K), call.rows[0]),
            _descriptor(
                b, (call.k, call.n), call.strides[1], (config.BLOCK_K, config.BLOCK_N), call.rows[1]
            ),
            _descriptor(
                out, (call.m, call.n), call.strides[3], (rows, config.BLOCK_N // config.PARTS), True
            ),
        ]
        return [*described, bias, call.m, call.n, call.k]

    def constants(self, config: PersistentConfig, call: MatmulCall) -> dict[str, Any]:
        return {
            "A_ROWS": call.rows[0], "B_ROWS": call.rows[1], "BIAS": call.bias,
            "ACTIVATION": call.activation, **config.as_dict(), "num_warps": 4,
        }  # fmt: skip

    def grid(self, config: PersistentConfig, call: MatmulCall, processors: int) -> Grid:
        return min(config.tiles(call.m, call.n), processors), 1, 1

    def stand_ins(self, call: MatmulCall) -> Sequence[StandInTensor]:
        return [StandInTensor((128, 128), call.dtype)] * 4

    def code(
        self, config: PersistentConfig, call: MatmulCall
    ) -> tuple[PersistentConfig, MatmulCall]:
        return config, replace(call, m=128, n=128, k=4096, strides=(4096, 128, 0, 128))

    def key(self, call: MatmulCall) -> dict[str, Any]:
        return TiledMatmul().key(call)

    def work(self, call: MatmulCall) -> Work:
        return TiledMatmul().work(call)

    def hides(self, call: MatmulCall, processors: int) -> bool:
        """Whether this kernel is the faster one, as it hides what follows the product: there is
        something, each multiprocessor has a tile, and k is not shorter than what was measured."""
        if call.residual or not (call.bias or call.activation != "none") or self.refusal(call):
            return False
        return call.k >= 64 and self.default(call).tiles(call.m, call.n) >= processors

    def check_call(self, call: MatmulCall) -> None:
        """Raises ValueError for what TMA or the tensor cores do not take."""
        if words := self.refusal(call):
            raise ValueError(words)

    def refusal(self, call: MatmulCall) -> str:
        """Why TMA or the tensor cores do not take a call; empty if they do."""
        if call.item != 2:
            return (
                "a has dtype torch.float32: the persistent kernel takes torch.float16 and "
                "torch.bfloat16"
            )
        for name, stride in zip(("a", "b", "residual", "out"), call.strides, strict=True):
            if stride % STEP:
                return (
                    f"{name} has rows (or columns) {stride} elements apart: the persistent kernel "
                    f"needs a multiple of {STEP}"
                )
        if not call.aligned:
            return (
                "a, b, out or bias does not begin at a multiple of 16 bytes, as the persistent "
                "kernel needs it"
            )
        return ""

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
