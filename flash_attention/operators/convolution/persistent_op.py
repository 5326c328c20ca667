"""The persistent convolution for Hopper as an Op."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from ...triton_kit.op import C, Grid, StandInTensor
from ..hopper import BARRIER_BYTES, STEP, check_hopper, descriptor, tile_problems
from .op import ConvCall, ConvOp

PART = 64  # columns of the output that are stored at a time
_LEAST_BOX = 16  # rows: smaller ones are more copies than they save
PROCESSORS = 132  # of an H100 or H200
_INT32 = 2**31 - 1


@dataclass(frozen=True)
class PersistentConvConfig:
    """Tiles of BLOCK_M pixels and BLOCK_N filters, of one group of warps or two; BUFFERS steps of
    BLOCK_K channels in shared memory; GROUP_M rows of tiles share operands in the L2 cache. A copy
    brings the pixels of a box of the output: IMAGES x LINES x PIXELS."""

    BLOCK_M: int = 128
    BLOCK_N: int = 128
    BLOCK_K: int = 64
    GROUP_M: int = 1
    BUFFERS: int = 6
    IMAGES: int = 1
    LINES: int = 8
    PIXELS: int = 8

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def box(self) -> tuple[int, int, int]:
        return self.IMAGES, self.LINES, self.PIXELS

    @property
    def rows(self) -> int:
        """Of a group of warps."""
        return max(64, self.BLOCK_M // 2)

    def boxes(self, call: ConvCall) -> int:
        call = in_one_line(call)
        sizes = zip((call.images, *call.out_size), self.box, strict=True)
        return math.prod(-(-size // its) for size, its in sizes)

    def tiles(self, call: ConvCall) -> int:
        rows = self.boxes(call) * math.prod(self.box)
        return -(-rows // self.BLOCK_M) * -(-call.filters // self.BLOCK_N)

    @property
    def shared_bytes(self) -> int:
        """Of the operands' places, and of two parts of the output."""
        operands = self.BUFFERS * (self.BLOCK_M + self.BLOCK_N) * self.BLOCK_K
        return 2 * (operands + 2 * self.BLOCK_M * PART) + BARRIER_BYTES


class TmaConv(ConvOp[C]):
    """The tensors are x, the weights, the output and bias (x where there is none), of 16-bit
    numbers, channels last."""

    written = (2,)
    architecture = 90

    def stand_ins(self, call: ConvCall) -> Sequence[StandInTensor]:
        return [StandInTensor((32, 32), call.dtype)] * 4

    def code(self, config: C, call: ConvCall) -> tuple[C, ConvCall]:
        """No size is specialised for."""
        same: dict[str, Any] = {"channels": 64, "filters": 64, "strides": ()}
        return config, replace(call, images=2, size=(32, 32), out_size=(32, 32), **same)

    def check_call(self, call: ConvCall) -> None:
        """Raises ValueError for what TMA or the tensor cores do not take."""
        if reasons := unfit(call):
            raise ValueError(f"algorithm is 'persistent': {reasons[0]}")

    def check_device(self, device: torch.device) -> None:
        """Raises ValueError for a GPU that is no Hopper."""
        check_hopper(device, "x", "'persistent'")


@dataclass(frozen=True)
class PersistentConv(TmaConv[PersistentConvConfig]):
    name = "conv-persistent"
    config_type = PersistentConvConfig

    def kernel(self) -> Any:
        from .persistent import persistent

        return persistent

    def space(self, call: ConvCall, architecture: int) -> list[PersistentConvConfig]:
        """First those with the least to multiply for the busiest multiprocessor, and of these that
        which reads the least. On an H200 the first is the fastest, or within 2.5 %, of seven
        layers of ResNet-50."""
        wide = [(128, 256, 4), (256, 128, 3)]  # with a bias the latter: 23.7 us, the former 31.7
        shapes = [*sorted(wide, reverse=call.bias), (128, 128, 6), (256, 64, 4), (64, 128, 8)]
        every = [with_best_box(PersistentConvConfig(m, n, BUFFERS=b), call) for m, n, b in shapes]

        def busiest(config: PersistentConvConfig) -> int:
            rounds = -(-config.tiles(call) // PROCESSORS)
            return rounds * config.BLOCK_M * config.BLOCK_N

        return sorted(every, key=busiest)

    def problems(self, config: PersistentConvConfig, call: ConvCall) -> list[str]:
        allowed = {"BLOCK_M": (64, 128, 256), "BLOCK_N": (64, 128, 256), "BLOCK_K": (64,),
                   "BUFFERS": range(2, 17)}  # fmt: skip
        found = tile_problems(config, allowed)
        if config.box not in _boxes(config.rows):
            found.append(
                f"IMAGES x LINES x PIXELS {config.box}: powers of two, {_LEAST_BOX} to "
                f"{config.rows} rows together"
            )
        return found

    def arguments(
        self, config: PersistentConvConfig, call: ConvCall, tensors: Sequence[Any]
    ) -> list[Any]:
        x, w, out, bias = tensors
        call = in_one_line(call)
        n, taps, c, f = call.images, math.prod(call.taps), call.channels, call.filters
        described = [
            _descriptor(x, (n, *call.size, c), (*config.box, config.BLOCK_K)),
            _descriptor(w, (f, taps, c), (config.BLOCK_N, 1, config.BLOCK_K)),
            _descriptor(out, (n, *call.out_size, f), (*config.box, PART)),
        ]
        return [*described, bias, n, *call.out_size, c, f]

    def constants(self, config: PersistentConvConfig, call: ConvCall) -> dict[str, Any]:
        shape = {name: v for name, v in call.shape.items() if not name.startswith("STRIDE")}
        return {
            **shape, "BIAS": call.bias, "ACTIVATION": call.activation, **config.as_dict(),
            "num_warps": 4, **({"maxnreg": 168} if config.BLOCK_M == 64 else {}),
        }  # fmt: skip

    def grid(self, config: PersistentConvConfig, call: ConvCall, processors: int) -> Grid:
        return min(config.tiles(call), processors), 1, 1


def unfit(call: ConvCall) -> list[str]:
    """Why the persistent kernel does not take a call."""
    numbers = {"channels": call.channels, "filters": call.filters}
    return [
        *([f"dtype is {call.dtype}: it takes float16 and bfloat16"] if call.item != 2 else ()),
        *([f"groups is {call.groups}: it takes 1"] if call.groups != 1 else ()),
        *([f"stride is {call.stride}: it takes 1"] if call.stride != (1, 1) else ()),
        *(f"{n} {name}: it takes multiples of {STEP}" for name, n in numbers.items() if n % STEP),
        *(() if call.aligned else ("a tensor does not begin at a multiple of 16 bytes",)),
    ]


def in_one_line(call: ConvCall) -> ConvCall:
    """One tap without padding needs of each pixel where it lies, not its neighbours: any that
    follow each other are a box."""
    if call.taps != (1, 1) or call.padding != (0, 0) or call.pixels > _INT32:
        return call
    return replace(call, images=1, size=(1, call.pixels), out_size=(1, call.pixels))


def with_best_box(config: PersistentConvConfig, call: ConvCall) -> PersistentConvConfig:
    """The box that makes the fewest tiles, and of these the largest."""

    def cost(made: PersistentConvConfig) -> tuple[int, int, int]:
        return made.tiles(call), -math.prod(made.box), made.IMAGES

    by_box = [replace(config, IMAGES=i, LINES=h, PIXELS=w) for i, h, w in _boxes(config.rows)]
    return min(by_box, key=cost)


def _boxes(rows: int) -> list[tuple[int, int, int]]:
    sizes = [2**i for i in range(9)]
    every = [(i, h, w) for i in sizes for h in sizes for w in sizes]
    return [box for box in every if _LEAST_BOX <= math.prod(box) <= rows]


def _descriptor(tensor: Any, shape: tuple[int, ...], box: tuple[int, ...]) -> Any:
    """Of a tensor without gaps."""
    return descriptor(tensor, shape, [math.prod(shape[i + 1 :]) for i in range(len(shape))], box)
