"""Kernels whose rows go through a ring of shared memory (ring.py), as Ops."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from ...triton_kit.op import Grid, StandInTensor, Work
from ..launching import Operator
from .op import RowCall, RowOp

_SHARED_BYTES = 227 * 1024
_VECTOR_BYTES = 16
_LEAST_ROW = 1024  # of whole vectors of a warp
# Of a multiprocessor's registers, and of those of a warp whose threads have 255.
_HELD_BYTES, _HELD_BY_WARP = 65536, 8192
_WARPS = (1, 2, 4, 8, 16, 32)
_MOST_WARPS = 64


@dataclass(frozen=True)
class RingConfig:
    """SLOTS places for BLOCK elements; `programs` of them on a multiprocessor."""

    BLOCK: int = 16384
    SLOTS: int = 6
    num_warps: int = 16
    programs: int = 1

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class RingOp(Operator[RingConfig, RowCall]):
    """What `plain` computes, for rows of whole vectors of 16 bytes."""

    module: str
    plain: RowOp
    config_type = RingConfig
    contiguous = False
    architecture = 90

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.module}.{self.plain.function}"

    @property
    def written(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.plain.write

    def kernel(self) -> Any:
        module = importlib.import_module(f"..{self.module}", __package__)
        return getattr(module, self.plain.function)

    def space(self, call: RowCall, architecture: int) -> list[RingConfig]:
        block = 32768 // _item(call)
        return [RingConfig(block, 6), RingConfig(block // 2, 12), RingConfig(block // 4, 24)]

    def problems(self, config: RingConfig, call: RowCall) -> list[str]:
        found = []
        n_bytes = config.programs * _shared_bytes(config, call)
        if n_bytes > _SHARED_BYTES:
            found.append(f"{n_bytes} bytes of shared memory: at most {_SHARED_BYTES} are possible")
        if call.align * _item(call) < _VECTOR_BYTES or not call.aligned:
            found.append("rows do not begin at multiples of 16 bytes")
        return found

    def fits(self, call: RowCall, device: torch.device) -> bool:
        """Whether the device, and the one that the emulator stands for, can run it."""
        space = self.space(call, self.architecture)
        if not space or self.problems(space[0], call):
            return False
        config = space[0]
        if device.type == "cpu":
            return True
        its = torch.cuda.get_device_properties(device)
        # Not of every device, and not in torch's stubs.
        most = getattr(its, "shared_memory_per_block_optin", 0)
        return _shared_bytes(config, call) <= int(most)

    def arguments(self, config: RingConfig, call: RowCall, tensors: Sequence[Any]) -> list[Any]:
        columns, *strides = (n // call.align for n in (call.columns, *call.strides))
        return [*tensors, call.rows, columns, *strides, *call.integers, *call.numbers]

    def constants(self, config: RingConfig, call: RowCall) -> dict[str, Any]:
        blocks = -(-call.columns // config.BLOCK)
        held = blocks if blocks <= config.SLOTS else config.SLOTS - 1 - config.SLOTS // 8
        return {
            **dict(call.switches), "ALIGN": call.align, "BLOCK": config.BLOCK,
            "SLOTS": config.SLOTS, "HELD": held, "STREAM": blocks > held,
            "num_warps": config.num_warps,
        }  # fmt: skip

    def grid(self, config: RingConfig, call: RowCall, processors: int) -> Grid:
        return min(call.rows, config.programs * processors), 1, 1

    def stand_ins(self, call: RowCall) -> Sequence[StandInTensor]:
        return self.plain.stand_ins(call)

    def code(self, config: RingConfig, call: RowCall) -> tuple[RingConfig, RowCall]:
        """Of the length only how many blocks stay in their places."""
        columns = min(-(-call.columns // config.BLOCK), config.SLOTS + 1) * config.BLOCK
        same: dict[str, Any] = {
            "strides": (32,) * len(call.strides), "numbers": (0.5,) * len(call.numbers)
        }  # fmt: skip
        return config, replace(call, rows=32, columns=columns, **same)

    def key(self, call: RowCall) -> dict[str, Any]:
        return self.plain.key(call) | {"kernel": self.name}

    def work(self, call: RowCall) -> Work:
        return self.plain.work(call)


@dataclass(frozen=True)
class HeldOp(RingOp):
    """What `plain` computes, for rows that a program keeps in its registers as they are stored; the
    ring has whole rows. `elements`: of a thread, by default."""

    elements: int = 64

    def space(self, call: RowCall, architecture: int) -> list[RingConfig]:
        """The default, with more and fewer warps, and two programs a multiprocessor."""
        block = max(_LEAST_ROW, 1 << (call.columns - 1).bit_length())
        rows = min(8, _SHARED_BYTES // (block * _item(call)))
        warps = max(4, block // (32 * self.elements))
        every = [
            RingConfig(block, rows // each, warps * more // 2, each)
            for each in (1, 2)
            for more in (2, 4, 1, 8)
        ]
        return [config for config in every if not self.problems(config, call)]

    def default(self, call: RowCall) -> RingConfig:
        possible = self.space(call, self.architecture)
        return possible[0] if possible else RingConfig(max(_LEAST_ROW, call.columns), 1)

    def problems(self, config: RingConfig, call: RowCall) -> list[str]:
        found = super().problems(config, call)
        if call.columns > config.BLOCK or config.BLOCK & (config.BLOCK - 1):
            found.append(f"BLOCK {config.BLOCK}: expected a power of two, at least {call.columns}")
        if config.SLOTS < 1:
            found.append(f"SLOTS {config.SLOTS}: at least 1")
        if config.num_warps not in _WARPS:
            found.append(f"num_warps {config.num_warps}: allowed are {', '.join(map(str, _WARPS))}")
        if config.num_warps * config.programs > _MOST_WARPS:
            found.append(f"more than {_MOST_WARPS} warps on a multiprocessor")
        held = config.BLOCK * _item(call) * config.programs
        if held > _HELD_BYTES or config.num_warps * _HELD_BY_WARP < held // config.programs:
            found.append(f"{held} bytes of rows in registers: more than a quarter of them")
        if dict(call.switches).get("RESIDUAL"):
            found.append("RESIDUAL: the kernel adds none")
        return found


def _shared_bytes(config: RingConfig, call: RowCall) -> int:
    return config.BLOCK * config.SLOTS * _item(call)


def _item(call: RowCall) -> int:
    return 4 if call.layouts[0][1] == "float32" else 2
