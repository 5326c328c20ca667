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
        config = self.space(call, self.architecture)[0]
        if self.problems(config, call):
            return False
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


def _shared_bytes(config: RingConfig, call: RowCall) -> int:
    return config.BLOCK * config.SLOTS * _item(call)


def _item(call: RowCall) -> int:
    return 4 if call.layouts[0][1] == "float32" else 2
