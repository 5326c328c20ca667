"""The kernels of convolutions as Ops: what a launch is, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...triton_kit.op import C, Grid, StandInTensor, Work
from ..launching import Operator
from ..matrices.config import MatmulConfig, configs, kind_of_product, problems
from ..matrices.op import parts_of_epilogue

_INT32 = 2**31 - 1
_MOST_ALIGN = 16
# For images of few channels, and for those that are loaded number by number, which needs registers
# for as many addresses: nothing less can be copied to shared memory while others are computed.
_NARROW = MatmulConfig(128, 64, 16, 8, 8, 2)
_LEAST_BYTES = 4
# The fastest on an H200 of more than 64 filters: several programs on a multiprocessor hide that
# every tile computes its addresses.
_SMALL = MatmulConfig(64, 128, 64, 8, 4, 3)
_ONE_STEP = MatmulConfig(128, 128, 64, 8, 8, 1)
Pair = tuple[int, int]


@dataclass(frozen=True)
class ConvCall:
    """A launch. `channels` and `filters` are those of one group; `strides`, for `direct` only,
    those of x and of the output but its last."""

    images: int
    channels: int
    filters: int
    size: Pair
    out_size: Pair
    taps: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    dtype: str
    bias: bool = False
    activation: str = "none"
    precision: str = "ieee"
    aligned: bool = True
    strides: tuple[int, ...] = ()

    @property
    def item(self) -> int:
        return 4 if self.dtype == "float32" else 2

    @property
    def pixels(self) -> int:
        """Of the output."""
        return self.images * math.prod(self.out_size)

    @property
    def wide(self) -> bool:
        """Some element is farther from the first than a 32-bit number says; the padding's, which
        are not read, included."""
        lines = self.size[0] + 2 * self.padding[0]
        inputs = self.images * lines * (self.size[1] + 2 * self.padding[1]) * self.channels
        return self.groups * max(inputs, self.pixels * self.filters) > _INT32

    @property
    def aligns(self) -> dict[str, int]:
        return {
            "C_ALIGN": math.gcd(_MOST_ALIGN, self.channels),
            "F_ALIGN": math.gcd(_MOST_ALIGN, self.filters),
        }

    @property
    def shape(self) -> dict[str, int]:
        """What is compiled into the code."""
        pairs = {
            "STRIDE": self.stride, "PAD": self.padding, "DIL": self.dilation,
        }  # fmt: skip
        by_name = {
            f"{n}_{d}": v for n, pair in pairs.items() for d, v in zip("HW", pair, strict=True)
        }
        return {"KH": self.taps[0], "KW": self.taps[1], **by_name}

    def sizes(self, channels: int, filters: int) -> list[int]:
        return [self.images, *self.size, *self.out_size, channels, filters]


class ConvOp(Operator[C, ConvCall]):
    contiguous = False

    def key(self, call: ConvCall) -> dict[str, Any]:
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(replace(call, strides=())).items()
        }

    def work(self, call: ConvCall) -> Work:
        """Operands read once, the output written once."""
        each = call.channels * math.prod(call.taps)
        out = call.pixels * call.filters * call.groups
        inputs = call.images * math.prod(call.size) * call.channels * call.groups
        weights = (each + call.bias) * call.filters * call.groups
        return Work(2 * out * each, call.item * (out + inputs + weights))


class _PlainConv(ConvOp[MatmulConfig]):
    config_type = MatmulConfig
    function: str  # in kernels

    def kernel(self) -> Any:
        from . import kernels

        return getattr(kernels, self.function)

    def problems(self, config: MatmulConfig, call: ConvCall) -> list[str]:
        return problems(config, call.item, self.architecture)

    def stand_ins(self, call: ConvCall) -> Sequence[StandInTensor]:
        address = 0 if call.aligned else 2
        return [StandInTensor((32, 32), call.dtype, address)] * (max(self.written) + 1)

    def code(self, config: MatmulConfig, call: ConvCall) -> tuple[MatmulConfig, ConvCall]:
        """No size is specialised for; what the code relies on is kept."""
        by = call.aligns
        channels = by["C_ALIGN"] if call.channels % config.BLOCK_K else config.BLOCK_K
        # So many that their product is beyond 32 bits, and none of them is.
        size, images = ((2**10, 2**10), 2**12) if call.wide else ((32, 32), 2)
        same: dict[str, Any] = {"channels": channels, "filters": by["F_ALIGN"]}
        strides = (32,) * len(call.strides)
        return config, replace(
            call, images=images, size=size, out_size=size, strides=strides, **same
        )


@dataclass(frozen=True)
class ImplicitConv(_PlainConv):
    """The tensors are x, the weights, bias (x where there is none) and the output."""

    architecture: int = 80
    name = "conv-implicit"
    function = "implicit"
    written = (3,)

    def space(self, call: ConvCall, architecture: int) -> list[MatmulConfig]:
        if call.channels <= _NARROW.BLOCK_K or call.aligns["C_ALIGN"] * call.item < _LEAST_BYTES:
            return [_NARROW]
        kind = kind_of_product(call.item, call.precision)
        found = configs(call.pixels, call.filters * call.groups, kind, architecture)
        # Filters beyond those of a group would be computed for nothing.
        fitting = [c for c in found if 2 * call.filters > c.BLOCK_N]
        fitting = fitting or [min(found, key=lambda c: c.BLOCK_N)]
        if architecture >= 90 and kind == "half" and call.filters > 64:
            first = _ONE_STEP if _steps(fitting[0], call) == 1 else _SMALL
            fitting = [first, *fitting]
        return list(dict.fromkeys(_shallow(c, call) for c in fitting))

    def arguments(self, config: MatmulConfig, call: ConvCall, tensors: Sequence[Any]) -> list[Any]:
        by = call.aligns
        units = call.channels // by["C_ALIGN"], call.filters // by["F_ALIGN"]
        return [*tensors, *call.sizes(*units)]

    def constants(self, config: MatmulConfig, call: ConvCall) -> dict[str, Any]:
        plain = not call.bias and call.activation == "none"
        return {
            "GROUPS": call.groups, **call.shape, **call.aligns, "WIDE": call.wide,
            "EVEN_C": call.channels % config.BLOCK_K == 0, "PRECISION": call.precision,
            "BIAS": call.bias, "ACTIVATION": call.activation,
            "PARTS": 1 if plain else parts_of_epilogue(config), **config.as_dict(),
        }  # fmt: skip

    def grid(self, config: MatmulConfig, call: ConvCall, processors: int) -> Grid:
        return config.tiles(call.pixels, call.filters), call.groups, 1


def _steps(config: MatmulConfig, call: ConvCall) -> int:
    return math.prod(call.taps) * -(-call.channels // config.BLOCK_K)


def _shallow(config: MatmulConfig, call: ConvCall) -> MatmulConfig:
    """With no more in flight than there are steps, nor than 3 of narrow tiles: what that leaves of
    the shared memory is another program's."""
    most = 3 if config.BLOCK_N <= 64 else config.num_stages
    return replace(config, num_stages=min(config.num_stages, most, _steps(config, call)))


@dataclass(frozen=True)
class Unfold(_PlainConv):
    """The tensors are x and the matrix."""

    name = "conv-unfold"
    function = "unfold"
    written = (1,)

    def space(self, call: ConvCall, architecture: int) -> list[MatmulConfig]:
        return [MatmulConfig(32, BLOCK_K=64, num_stages=1)]

    def arguments(self, config: MatmulConfig, call: ConvCall, tensors: Sequence[Any]) -> list[Any]:
        return [*tensors, *call.sizes(call.channels // call.aligns["C_ALIGN"], call.filters)]

    def constants(self, config: MatmulConfig, call: ConvCall) -> dict[str, Any]:
        return {
            "GROUPS": call.groups, **call.shape, "C_ALIGN": call.aligns["C_ALIGN"],
            "BLOCK_M": config.BLOCK_M, "BLOCK_K": config.BLOCK_K, "num_warps": config.num_warps,
        }  # fmt: skip

    def grid(self, config: MatmulConfig, call: ConvCall, processors: int) -> Grid:
        return -(-call.pixels // config.BLOCK_M), math.prod(call.taps) * call.groups, 1


@dataclass(frozen=True)
class DirectConv(_PlainConv):
    """The tensors are x, the weights and the output."""

    name = "conv-direct"
    function = "direct"
    written = (2,)

    def space(self, call: ConvCall, architecture: int) -> list[MatmulConfig]:
        return [MatmulConfig(256, num_stages=1)]

    def arguments(self, config: MatmulConfig, call: ConvCall, tensors: Sequence[Any]) -> list[Any]:
        return [*tensors, *call.sizes(call.channels, call.filters), *call.strides]

    def constants(self, config: MatmulConfig, call: ConvCall) -> dict[str, Any]:
        return {**call.shape, "BLOCK_M": config.BLOCK_M, "num_warps": config.num_warps}

    def grid(self, config: MatmulConfig, call: ConvCall, processors: int) -> Grid:
        return -(-call.pixels // config.BLOCK_M), call.filters * call.groups, 1
