"""Kernels that compute a row a program, without masks for whole blocks (alone.py), as Ops."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from ..launching import is_recorded
from .best_op import MOST_OF_THREAD, BestOp
from .op import RowCall
from .parts_op import alike, problems_of

_ALL_REGISTERS = 65536  # of a multiprocessor
LEAST_ROWS = 1024  # fewer were not timed; shared, they have more programs


@dataclass(frozen=True)
class AloneConfig:
    """A program takes BLOCK columns of its row at a time, and no more registers than let `programs`
    of them be on a multiprocessor."""

    BLOCK: int = 16384
    num_warps: int = 16
    programs: int = 2

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class AloneOp(BestOp[AloneConfig]):
    """`steps`: whether rows may be longer than BLOCK."""

    steps: bool = False
    config_type = AloneConfig

    def problems(self, config: AloneConfig, call: RowCall) -> list[str]:
        found = problems_of(config, call, MOST_OF_THREAD)
        if call.columns > config.BLOCK and not self.steps:
            found.append(f"BLOCK {config.BLOCK}: rows of {call.columns} need more")
        most = _ALL_REGISTERS // (32 * 32 * max(1, config.num_warps))
        if not 1 <= config.programs <= most:
            found.append(f"programs {config.programs}: {most} have 32 registers a thread")
        if dict(call.switches).get("RESIDUAL"):
            found.append("RESIDUAL: the kernel adds none")
        return found

    def is_faster(self, call: RowCall, x: torch.Tensor) -> bool:
        """Whether it is what computes x's rows by default. torch.compile cannot record Gluon."""
        if call.rows < LEAST_ROWS or is_recorded(x):
            return False
        return bool(self.space(call, self.architecture))

    def constants(self, config: AloneConfig, call: RowCall) -> dict[str, Any]:
        constants = config.as_dict()
        registers = _ALL_REGISTERS // (32 * config.num_warps * constants.pop("programs")) // 8 * 8
        return {
            **dict(call.switches), "ALIGN": call.align, "FULL": call.columns % config.BLOCK == 0,
            **constants, "maxnreg": min(255, registers),
        }  # fmt: skip

    def code(self, config: AloneConfig, call: RowCall) -> tuple[AloneConfig, RowCall]:
        """Of the length only whether it is a multiple of BLOCK."""
        columns = config.BLOCK - (0 if call.columns % config.BLOCK == 0 else call.align)
        return config, alike(call, columns)
