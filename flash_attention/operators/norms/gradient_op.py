"""The kernel of gradient_parts.py as an Op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from ...triton_kit.op import Grid, StandInTensor, Work
from ..launching import Operator, is_recorded, processors
from ..rows.op import RowCall

_ALL_SHARED_BYTES, _RESERVED_BYTES = 228 * 1024, 1024  # of a multiprocessor; of each program there
_ALL_REGISTERS = 65536
_VECTOR_BYTES = 16
_LANES = 32
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
class GradientOp(Operator[GradientConfig, RowCall]):
    """The tensors are those of `rows_whole` in gradients.py, with as many rows of sums as there are
    `groups`, and the words of an Exchange, which are zero before and after."""

    name = "norms.gradient_parts.backward"
    config_type = GradientConfig
    contiguous = False
    architecture = 90
    written = (6, 7, 8, 9)
    zeroed = (9,)

    def kernel(self) -> Any:
        from .gradient_parts import backward

        return backward

    def space(self, call: RowCall, architecture: int) -> list[GradientConfig]:
        """The smallest parts first of which a row has not too many; of fp32 fewer rows."""
        half = _item(call) == 2
        slots = 4 if half else 3
        large = GradientConfig(4096, 5, 8, 2, 2) if half else GradientConfig(4096, 3, 8, 2)
        every = [GradientConfig(1024, slots, 2, 8), GradientConfig(2048, slots, 4, 4), large]
        every.sort(key=lambda config: parts_of(config, call) > _FEW_PARTS[config.BLOCK])
        every.append(replace(large, programs=1))
        return [config for config in every if not self.problems(config, call)]

    def problems(self, config: GradientConfig, call: RowCall) -> list[str]:
        threads, item = 32 * config.num_warps, _item(call)
        if not 1 <= config.num_warps <= 32 or config.num_warps & (config.num_warps - 1):
            return [f"num_warps {config.num_warps}: allowed are powers of two up to 32"]
        found = []
        vector = _VECTOR_BYTES // item
        allowed = [n * threads for n in (vector << i for i in range(6)) if n <= _MOST_OF_THREAD]
        if config.BLOCK not in allowed:
            blocks = ", ".join(map(str, allowed))
            found.append(f"BLOCK {config.BLOCK}: allowed are {blocks} with {threads} threads")
        if config.LAG < 1:
            found.append(f"LAG {config.LAG}: at least 1")
        if config.SLOTS < config.LAG + 2:
            found.append(f"SLOTS {config.SLOTS}: at least LAG + 2")
        # The parts, and what a reduction exchanges between warps.
        n_bytes = 2 * config.SLOTS * config.BLOCK * item + 16 * config.num_warps
        most = min(
            _ALL_SHARED_BYTES // (n_bytes + _RESERVED_BYTES), _ALL_REGISTERS // (threads * 64)
        )
        if not 1 <= config.programs <= most:
            found.append(f"programs {config.programs}: {most} have room")
        if call.align * item < _VECTOR_BYTES or not call.aligned:
            found.append("rows do not begin at multiples of 16 bytes")
        return found

    def problem_of(self, config: GradientConfig, call: RowCall, device: torch.device) -> str | None:
        """Why this device, or the one that the emulator stands for, cannot run it."""
        most = config.programs * processors(device)
        if (parts := parts_of(config, call)) > most:
            return f"rows of {parts} parts: {most} programs can run at a time"
        if device.type == "cpu":
            return None
        its = torch.cuda.get_device_properties(device)
        if getattr(its, "shared_memory_per_multiprocessor", 0) < _ALL_SHARED_BYTES:
            return f"{its.name} has less than {_ALL_SHARED_BYTES} bytes of memory a multiprocessor"
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

    def arguments(self, config: GradientConfig, call: RowCall, tensors: Sequence[Any]) -> list[Any]:
        columns, *strides = (n // call.align for n in (call.columns, *call.strides))
        return [*tensors, call.rows, columns, *strides, parts_of(config, call)]

    def constants(self, config: GradientConfig, call: RowCall) -> dict[str, Any]:
        registers = _ALL_REGISTERS // (32 * config.num_warps * config.programs) // 8 * 8
        return {
            **dict(call.switches), "ALIGN": call.align, "FULL": call.columns % config.BLOCK == 0,
            "BLOCK": config.BLOCK, "SLOTS": config.SLOTS, "LAG": config.LAG,
            "MOST": _most(config, call), "num_warps": config.num_warps,
            "maxnreg": min(255, registers), "launch_cooperative_grid": True,
        }  # fmt: skip

    def grid(self, config: GradientConfig, call: RowCall, processors: int) -> Grid:
        return parts_of(config, call) * self.groups(config, call, processors), 1, 1

    def stand_ins(self, call: RowCall) -> Sequence[StandInTensor]:
        tensors = [StandInTensor((32,) * dims, dtype) for dims, dtype in call.layouts]
        return [*tensors, StandInTensor((32,), "int64")]

    def code(self, config: GradientConfig, call: RowCall) -> tuple[GradientConfig, RowCall]:
        """Of the length only the power of two of its parts, and whether the last one is whole."""
        rest = 0 if call.columns % config.BLOCK == 0 else call.align
        columns = _most(config, call) * config.BLOCK - rest
        return config, replace(call, rows=32, columns=columns, strides=(32,) * len(call.strides))

    def key(self, call: RowCall) -> dict[str, Any]:
        return {
            "kernel": self.name, "rows": call.rows, "columns": call.columns, "align": call.align,
            "layouts": [list(layout) for layout in call.layouts],
            "switches": [list(switch) for switch in call.switches],
        }  # fmt: skip

    def work(self, call: RowCall) -> Work:
        n = call.rows * call.columns
        return Work(flop=16 * n, n_bytes=3 * n * _item(call))


def parts_of(config: GradientConfig, call: RowCall) -> int:
    return -(-call.columns // config.BLOCK)


def _most(config: GradientConfig, call: RowCall) -> int:
    """The next power of two, and a number for each lane at least."""
    return max(_LANES, 1 << (parts_of(config, call) - 1).bit_length())


def _item(call: RowCall) -> int:
    return 4 if call.layouts[0][1] == "float32" else 2
