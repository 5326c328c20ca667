"""The convolution of one tap whose tiles all run at once, as an Op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...triton_kit.op import Grid
from ..hopper import BARRIER_BYTES, SHARED_BYTES, descriptor, tile_problems
from .op import ConvCall
from .persistent_op import PART, PROCESSORS, TmaConv, in_one_line

_RESERVED_BYTES = 1024  # of shared memory, for each program
_MOST_PROGRAMS = 3  # on a multiprocessor
# All warps meet three times for each step that is loaded, 0.2 us on an H200, and the first product
# waits for all that is loaded ahead: six steps are faster than seven, four of 128 than nine of 64.
_MOST_BUFFERS = 6
_SHAPES = (128, 128), (64, 128)


@dataclass(frozen=True)
class SingleConvConfig:
    """Tiles of BLOCK_M pixels and BLOCK_N filters, of one group of warps; BUFFERS steps of BLOCK_K
    channels in shared memory, which the output leaves by."""

    BLOCK_M: int = 128
    BLOCK_N: int = 128
    BLOCK_K: int = 64
    BUFFERS: int = 3

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def GROUP_M(self) -> int:
        """Tiles follow each other pixel by pixel."""
        return 1

    def tiles(self, call: ConvCall) -> int:
        return -(-call.pixels // self.BLOCK_M) * -(-call.filters // self.BLOCK_N)

    def programs(self, call: ConvCall) -> int:
        """Of the busiest multiprocessor."""
        return -(-self.tiles(call) // PROCESSORS)

    @property
    def shared_bytes(self) -> int:
        return 2 * self.BUFFERS * (self.BLOCK_M + self.BLOCK_N) * self.BLOCK_K + BARRIER_BYTES


@dataclass(frozen=True)
class SingleConv(TmaConv[SingleConvConfig]):
    """Tensors as of the persistent kernel."""

    name = "conv-single"
    config_type = SingleConvConfig

    def kernel(self) -> Any:
        from .single import single

        return single

    def space(self, call: ConvCall, architecture: int) -> list[SingleConvConfig]:
        """First that which leaves the least to multiply for the busiest multiprocessor; what its
        shared memory holds is loaded ahead. Of small tiles that have it alone a step is twice as
        long."""

        def with_buffers(m: int, n: int) -> SingleConvConfig:
            one = SingleConvConfig(m, n, BUFFERS=1)
            if one.programs(call) == 1 and m < 128 and call.channels > one.BLOCK_K:
                one = replace(one, BLOCK_K=128)
            room = (SHARED_BYTES + _RESERVED_BYTES) // one.programs(call) - _RESERVED_BYTES
            most = (room - BARRIER_BYTES) // (one.shared_bytes - BARRIER_BYTES)
            steps = -(-call.channels // one.BLOCK_K)
            return replace(one, BUFFERS=max(2, min(most, steps, _MOST_BUFFERS)))

        def busiest(config: SingleConvConfig) -> int:
            return config.programs(call) * config.BLOCK_M * config.BLOCK_N

        return sorted((with_buffers(*shape) for shape in _SHAPES), key=busiest)

    def problems(self, config: SingleConvConfig, call: ConvCall) -> list[str]:
        allowed = {"BLOCK_M": (64, 128), "BLOCK_N": (64, 128), "BLOCK_K": (64, 128),
                   "BUFFERS": range(2, 17)}  # fmt: skip
        found = tile_problems(config, allowed)
        if in_one_line(call) is call:
            found.append("it takes one tap without padding")
        return found

    def is_faster(self, call: ConvCall) -> bool:
        """Than the persistent kernel, as far as that was measured: where all tiles run at once, and
        the loads of enough steps are ahead."""
        if in_one_line(call) is call or 2 * call.filters <= _SHAPES[0][1]:
            return False
        config = self.default(call)
        ahead = config.BUFFERS > 2 or call.channels <= 4 * config.BLOCK_K
        return ahead and config.programs(call) <= _MOST_PROGRAMS

    def arguments(
        self, config: SingleConvConfig, call: ConvCall, tensors: Sequence[Any]
    ) -> list[Any]:
        x, w, out, bias = tensors
        m, c, f = call.pixels, call.channels, call.filters
        described = [
            descriptor(x, (m, c), (c, 1), (config.BLOCK_M, config.BLOCK_K)),
            descriptor(w, (f, c), (c, 1), (config.BLOCK_N, config.BLOCK_K)),
            descriptor(out, (m, f), (f, 1), (config.BLOCK_M, PART)),
        ]
        return [*described, bias, c, f]

    def constants(self, config: SingleConvConfig, call: ConvCall) -> dict[str, Any]:
        return {
            "BIAS": call.bias, "ACTIVATION": call.activation, **config.as_dict(), "num_warps": 4,
        }  # fmt: skip

    def grid(self, config: SingleConvConfig, call: ConvCall, processors: int) -> Grid:
        return config.tiles(call), 1, 1
