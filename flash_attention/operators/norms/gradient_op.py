"""The kernel of gradient_parts.py as an Op."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from ...triton_kit.op import Grid
from ..launching import is_recorded, processors
from ..rows.op import RowCall, item_of
from ..rows.parts_op import SharedOp, parts_of, problems_of

_SHARED_BYTES, _RESERVED_BYTES = 228 * 1024, 1024  # of a multiprocessor; of each program there
_ALL_REGISTERS = 65536
_LEAST_REGISTERS = 64  # of a thread, without spills
_FEW_PARTS = {1024: 32, 2048: 64, 4096: 2**31}  # that wait for each other without losing much
_MOST_OF_THREAD = 16  # elements: more sums do not stay in registers


@dataclass(frozen=True)
class GradientConfig:
    """A part has BLOCK elements, and each program room for SLOTS rows' parts of x and of the
    gradient; `programs` are on a multiprocessor at a time. A row is written LAG turns after its
    parts were summed up."""

    BLOCK: int = 2048
    SLOTS: int = 4
    num_warps: int = 4
    programs: int = 4
    LAG: int = 1

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class GradientOp(SharedOp[GradientConfig]):
    """The tensors are those of `rows_whole` in gradients.py, with as many rows of sums as there are
    `groups`."""

    config_type = GradientConfig
    architecture = 90

    def space(self, call: RowCall, architecture: int) -> list[GradientConfig]:
        """The smallest parts first of which a row has not too many; of fp32 fewer rows."""
        half = item_of(call) == 2
        slots = 4 if half else 3
        large = GradientConfig(4096, 5, 8, 2, 2) if half else GradientConfig(4096, 3, 8, 2)
        every = [GradientConfig(1024, slots, 2, 8), GradientConfig(2048, slots, 4, 4), large]
        every.sort(key=lambda config: parts_of(config, call) > _FEW_PARTS[config.BLOCK])
        every.append(replace(large, programs=1))
        return [config for config in every if not self.problems(config, call)]

    def problems(self, config: GradientConfig, call: RowCall) -> list[str]:
        found = problems_of(config, call, _MOST_OF_THREAD)
        if config.LAG < 1:
            found.append(f"LAG {config.LAG}: at least 1")
        if config.SLOTS < config.LAG + 2:
            found.append(f"SLOTS {config.SLOTS}: at least LAG + 2")
        # The parts, and what a reduction exchanges between warps.
        n_bytes = 2 * config.SLOTS * config.BLOCK * item_of(call) + 16 * config.num_warps
        registers = 32 * max(1, config.num_warps) * _LEAST_REGISTERS
        most = min(_SHARED_BYTES // (n_bytes + _RESERVED_BYTES), _ALL_REGISTERS // registers)
        if not 1 <= config.programs <= most:
            found.append(f"programs {config.programs}: {most} have room")
        return found

    def problem_of(self, config: GradientConfig, call: RowCall, device: torch.device) -> str | None:
        """Why this device, or the one that the emulator stands for, cannot run it."""
        most = config.programs * processors(device)
        if (parts := parts_of(config, call)) > most:
            return f"rows of {parts} parts: {most} programs can run at a time"
        if device.type == "cpu":
            return None
        its = torch.cuda.get_device_properties(device)
        if getattr(its, "shared_memory_per_multiprocessor", 0) < _SHARED_BYTES:
            return f"{its.name} has less than {_SHARED_BYTES} bytes of memory a multiprocessor"
        return None

    def fits(self, call: RowCall, x: torch.Tensor) -> bool:
        """Whether x's rows are computed by it. torch.compile cannot record Gluon."""
        if is_recorded(x):
            return False
        possible = self.space(call, self.architecture)
        return bool(possible) and self.problem_of(possible[0], call, x.device) is None

    def groups(self, config: GradientConfig, call: RowCall, processors: int) -> int:
        """Of programs, each of which has every so many-th row."""
        return min(call.rows, config.programs * processors // parts_of(config, call))

    def words(self, config: GradientConfig, call: RowCall, device: torch.device) -> torch.Tensor:
        """Zeros: a word of each part of each row, and a count of 4 bytes of each group."""
        n = call.rows * parts_of(config, call) + self.groups(config, call, processors(device))
        return torch.zeros(n, dtype=torch.int64, device=device)

    def constants(self, config: GradientConfig, call: RowCall) -> dict[str, Any]:
        constants = super().constants(config, call)
        registers = _ALL_REGISTERS // (32 * config.num_warps * constants.pop("programs")) // 8 * 8
        return {**constants, "maxnreg": min(255, registers), "launch_cooperative_grid": True}

    def grid(self, config: GradientConfig, call: RowCall, processors: int) -> Grid:
        return parts_of(config, call) * self.groups(config, call, processors), 1, 1
