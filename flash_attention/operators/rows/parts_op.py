"""Kernels whose rows are shared by several programs (ring.py, exchange.py), as Ops."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from ...triton_kit.op import Grid, StandInTensor, Work
from ..launching import Operator, is_recorded, processors, run
from .op import RowCall, RowOp

_SHARED_BYTES = 227 * 1024  # of a program
_ALL_SHARED_BYTES, _RESERVED_BYTES = 228 * 1024, 1024  # of a multiprocessor; of each program there
_REGISTERS = 65536  # of a multiprocessor
_LEAST_REGISTERS = 64  # of a thread, without spills
_VECTOR_BYTES = 16
_LANES = 32
_MOST_OF_THREAD = 32  # elements: more do not stay in registers
_ROUNDS = 8  # as in exchange.py
_MOST_LAG = _ROUNDS // 2 - 1
_PART_BYTES = 8192


@dataclass(frozen=True)
class PartsConfig:
    """A part has BLOCK elements, and SLOTS places; `programs` are on a multiprocessor at a time. A
    row is written LAG rows after its parts were summed up."""

    BLOCK: int = 4096
    SLOTS: int = 5
    num_warps: int = 4
    programs: int = 4
    LAG: int = 1

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class PartsOp(Operator[PartsConfig, RowCall]):
    """What `plain` computes, for rows of whole vectors of 16 bytes. The last tensor is the words of
    an Exchange. `vectors`: positions of the tensors that stay in shared memory, where there are
    such (the switches of these names). `first`: the configuration to begin with, of 16 bits; with
    the switch `heavy`, and a last part that is not whole, a thread needs more registers. `beyond`:
    columns up to which rows are faster otherwise."""

    module: str
    plain: RowOp
    first: PartsConfig
    heavy: str
    beyond: int
    vectors: tuple[tuple[int, str], ...] = ()
    most_lag: int = _MOST_LAG
    few_parts: int = 64  # that wait for each other without losing much
    config_type = PartsConfig
    contiguous = False
    architecture = 90

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.module}.{self.plain.function}"

    @property
    def written(self) -> tuple[int, ...]:  # type: ignore[override]
        return (*self.plain.write, *self.zeroed)

    @property
    def zeroed(self) -> tuple[int, ...]:  # type: ignore[override]
        return (max(self.plain.write) + 1,)

    def kernel(self) -> Any:
        module = importlib.import_module(f"..{self.module}", __package__)
        return getattr(module, self.plain.function)

    def space(self, call: RowCall, architecture: int) -> list[PartsConfig]:
        """Parts of 8 KiB, and twice as large ones for half as many programs: first those if there
        would be too many of the others. Fewer places and programs where they do not fit; with more
        warps first."""
        first = replace(self.first, BLOCK=_PART_BYTES // _item(call))
        larger = replace(
            first, BLOCK=2 * first.BLOCK, num_warps=2 * first.num_warps,
            programs=max(1, first.programs // 2),
        )  # fmt: skip
        many = call.columns > self.few_parts * first.BLOCK
        heavy = bool(dict(call.switches).get(self.heavy) and call.columns % first.BLOCK)
        every = [
            replace(config, SLOTS=slots, programs=programs)
            for config in ((larger, first) if many else (first, larger))
            for programs in range(max(1, config.programs - heavy), 0, -1)
            for slots in range(config.SLOTS, config.LAG + 1, -1)
        ]
        possible = [config for config in every if not self.problems(config, call)]
        return sorted(possible, key=lambda config: -config.programs * config.num_warps)

    def problems(self, config: PartsConfig, call: RowCall) -> list[str]:
        found = []
        threads, item = 32 * config.num_warps, _item(call)
        vector = _VECTOR_BYTES // item
        if config.num_warps < 1 or config.num_warps & (config.num_warps - 1):
            return [f"num_warps {config.num_warps}: allowed are powers of two"]
        allowed = [n for n in (vector << i for i in range(6)) if n <= _MOST_OF_THREAD]
        if config.BLOCK not in [n * threads for n in allowed]:
            blocks = ", ".join(str(n * threads) for n in allowed)
            found.append(f"BLOCK {config.BLOCK}: allowed are {blocks} with {threads} threads")
        if not 1 <= config.LAG <= self.most_lag:
            found.append(f"LAG {config.LAG}: allowed are 1 to {self.most_lag}")
        if config.SLOTS < config.LAG + 2:
            found.append(f"SLOTS {config.SLOTS}: at least LAG + 2")
        if config.programs < 1 or _registers(config) < _LEAST_REGISTERS:
            most = _REGISTERS // (threads * _LEAST_REGISTERS)
            found.append(f"programs {config.programs}: allowed are 1 to {most}")
        n_bytes = self._shared_bytes(config, call)
        if n_bytes > _SHARED_BYTES:
            found.append(f"{n_bytes} bytes of shared memory: at most {_SHARED_BYTES} are possible")
        elif config.programs * (n_bytes + _RESERVED_BYTES) > _ALL_SHARED_BYTES:
            found.append(
                f"{n_bytes} bytes of shared memory: too many for {config.programs} programs"
            )
        if call.align * item < _VECTOR_BYTES or not call.aligned:
            found.append("rows do not begin at multiples of 16 bytes")
        if dict(call.switches).get("RESIDUAL"):
            found.append("RESIDUAL: the kernel adds none")
        return found

    def _shared_bytes(self, config: PartsConfig, call: RowCall) -> int:
        """The ring, vectors, and what a reduction exchanges between warps."""
        switches = dict(call.switches)
        vectors = [_bytes_of(call.layouts[i][1]) for i, name in self.vectors if switches.get(name)]
        held = config.BLOCK * (config.SLOTS * _item(call) + sum(vectors))
        return held + 16 * config.num_warps

    def problem_of(self, config: PartsConfig, call: RowCall, device: torch.device) -> str | None:
        """Why this device, or the one that the emulator stands for, cannot run it."""
        most = config.programs * processors(device)
        if (parts := _parts(config, call)) > most:
            return f"rows of {parts} parts: {most} programs can run at a time"
        if device.type == "cpu":
            return None
        its = torch.cuda.get_device_properties(device)
        if getattr(its, "shared_memory_per_multiprocessor", 0) < _ALL_SHARED_BYTES:
            return f"{its.name} has less than {_ALL_SHARED_BYTES} bytes of memory a multiprocessor"
        return None

    def fits(self, call: RowCall, device: torch.device) -> bool:
        possible = self.space(call, self.architecture)
        return bool(possible) and self.problem_of(possible[0], call, device) is None

    def is_faster(self, call: RowCall, x: torch.Tensor) -> bool:
        """Whether it is what computes x's rows by default. torch.compile cannot record Gluon."""
        return call.columns > self.beyond and not is_recorded(x) and self.fits(call, x.device)

    def words(self, config: PartsConfig, call: RowCall, device: torch.device) -> torch.Tensor:
        """Zeros, for all programs of the launch: words, and a count of 4 bytes for each group."""
        programs = self.grid(config, call, processors(device))[0]
        return torch.zeros(programs * (2 * _ROUNDS + 1), dtype=torch.int64, device=device)

    def arguments(self, config: PartsConfig, call: RowCall, tensors: Sequence[Any]) -> list[Any]:
        columns, *strides = (n // call.align for n in (call.columns, *call.strides))
        parts = _parts(config, call)
        return [*tensors, call.rows, columns, *strides, parts, *call.integers, *call.numbers]

    def constants(self, config: PartsConfig, call: RowCall) -> dict[str, Any]:
        return {
            **dict(call.switches), "ALIGN": call.align, "FULL": call.columns % config.BLOCK == 0,
            "BLOCK": config.BLOCK, "SLOTS": config.SLOTS, "LAG": config.LAG,
            "MOST": _most(config, call),
            "num_warps": config.num_warps, "maxnreg": min(255, _registers(config)),
            "launch_cooperative_grid": True,
        }  # fmt: skip

    def grid(self, config: PartsConfig, call: RowCall, processors: int) -> Grid:
        parts = _parts(config, call)
        return parts * min(call.rows, config.programs * processors // parts), 1, 1

    def stand_ins(self, call: RowCall) -> Sequence[StandInTensor]:
        return [*self.plain.stand_ins(call), StandInTensor((32,), "int64")]

    def code(self, config: PartsConfig, call: RowCall) -> tuple[PartsConfig, RowCall]:
        """Of the length only the power of two of its parts, and whether the last one is whole."""
        columns = _most(config, call) * config.BLOCK - (
            0 if call.columns % config.BLOCK == 0 else call.align
        )
        same: dict[str, Any] = {
            "strides": (32,) * len(call.strides), "numbers": (0.5,) * len(call.numbers)
        }  # fmt: skip
        return config, replace(call, rows=32, columns=columns, **same)

    def key(self, call: RowCall) -> dict[str, Any]:
        return self.plain.key(call) | {"kernel": self.name}

    def work(self, call: RowCall) -> Work:
        return self.plain.work(call)


def run_parts(
    op: PartsOp, call: RowCall, tensors: Sequence[torch.Tensor], config: PartsConfig | None = None
) -> None:
    """run(), with the words. Raises ValueError for a configuration that the device cannot run."""
    config = op.checked(config, call)
    if reason := op.problem_of(config, call, tensors[0].device):
        raise ValueError(f"{config} cannot run there: {reason}")
    run(op, call, (*tensors, op.words(config, call, tensors[0].device)), config)


def _registers(config: PartsConfig) -> int:
    """Of a thread, so that `programs` fit on a multiprocessor."""
    return _REGISTERS // (32 * config.num_warps * max(1, config.programs)) // 8 * 8


def _parts(config: PartsConfig, call: RowCall) -> int:
    return -(-call.columns // config.BLOCK)


def _most(config: PartsConfig, call: RowCall) -> int:
    """The next power of two, and a number for each lane at least."""
    return max(_LANES, 1 << (_parts(config, call) - 1).bit_length())


def _item(call: RowCall) -> int:
    return _bytes_of(call.layouts[0][1])


def _bytes_of(dtype: str) -> int:
    return 4 if dtype == "float32" else 2
