"""Kernels whose rows are shared by several programs (part.py, exchange.py), as Ops."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, TypeVar

import torch

from ...triton_kit.op import Config, Grid, StandInTensor, Work
from ..launching import Operator, is_recorded, run
from .op import VECTOR_BYTES, RowCall, RowOp, item_of

_SHARED_BYTES = 227 * 1024  # of a program
_LANES = 32
_MOST_OF_THREAD = 32  # elements of a chunk: more do not stay in registers
_MOST_PROGRAMS = 2**31 - 1
_REGISTERS = 80  # of a thread: fewer, as ptxas would have it by itself, end in spills
_PART_BYTES = 8192
_FEW_PARTS = 64


class Sized(Config, Protocol):
    """A configuration whose parts have BLOCK elements."""

    @property
    def BLOCK(self) -> int: ...

    @property
    def num_warps(self) -> int: ...


S = TypeVar("S", bound=Sized)


@dataclass(frozen=True)
class GluonOp(Operator[S, RowCall]):
    """What `plain` computes, by the kernel of the same name in `module`, for rows of whole vectors
    of 16 bytes."""

    module: str
    plain: RowOp
    contiguous = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.module}.{self.plain.function}"

    def kernel(self) -> Any:
        module = importlib.import_module(f"..{self.module}", __package__)
        return getattr(module, self.plain.function)

    def key(self, call: RowCall) -> dict[str, Any]:
        return self.plain.key(call) | {"kernel": self.name}

    def work(self, call: RowCall) -> Work:
        return self.plain.work(call)


def alike(call: RowCall, columns: int) -> RowCall:
    """A call of that length with the same machine code, whatever the other numbers are."""
    same: dict[str, Any] = {
        "strides": (32,) * len(call.strides), "numbers": (0.5,) * len(call.numbers)
    }  # fmt: skip
    return replace(call, rows=32, columns=columns, **same)


@dataclass(frozen=True)
class SharedOp(GluonOp[S]):
    """Rows that programs share. The last tensor is the words of an Exchange, which are zero before
    and after."""

    @property
    def written(self) -> tuple[int, ...]:  # type: ignore[override]
        return (*self.plain.write, *self.zeroed)

    @property
    def zeroed(self) -> tuple[int, ...]:  # type: ignore[override]
        return (max(self.plain.write) + 1,)

    def arguments(self, config: S, call: RowCall, tensors: Sequence[Any]) -> list[Any]:
        columns, *strides = (n // call.align for n in (call.columns, *call.strides))
        parts = parts_of(config, call)
        return [*tensors, call.rows, columns, *strides, parts, *call.integers, *call.numbers]

    def constants(self, config: S, call: RowCall) -> dict[str, Any]:
        return {
            **dict(call.switches), "ALIGN": call.align, "FULL": call.columns % config.BLOCK == 0,
            "MOST": _most(config, call), **config.as_dict(),
        }  # fmt: skip

    def stand_ins(self, call: RowCall) -> Sequence[StandInTensor]:
        return [*self.plain.stand_ins(call), StandInTensor((32,), "int64")]

    def code(self, config: S, call: RowCall) -> tuple[S, RowCall]:
        """Of the length only the power of two of its parts, and whether the last one is whole."""
        columns = _most(config, call) * config.BLOCK - (
            0 if call.columns % config.BLOCK == 0 else call.align
        )
        return config, alike(call, columns)


@dataclass(frozen=True)
class PartsConfig:
    """A program has BLOCK elements of a row in shared memory, and goes over them in CHUNKS. Who has
    asked PATIENCE times for the other parts' numbers (some 100 us; they take 2 or 3) works them out
    alone."""

    BLOCK: int = 8192
    CHUNKS: int = 4
    num_warps: int = 2
    PATIENCE: int = 200

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class PartsOp(SharedOp[PartsConfig]):
    """`beyond`: columns up to which rows are faster otherwise. `few`: parts of 8 KiB up to which
    they are better than larger ones."""

    beyond: int = 0
    few: int = 16
    config_type = PartsConfig

    def space(self, call: RowCall, architecture: int) -> list[PartsConfig]:
        """Parts of 8 KiB for a warp, of which there are many on a multiprocessor at a time, and
        larger ones: first those of which a row does not have too many."""
        parts = [
            PartsConfig(warps * _PART_BYTES // item_of(call), num_warps=warps)
            for warps in (1, 2, 4, 8)
        ]
        possible = [config for config in parts if not self.problems(config, call)]

        def too_many(config: PartsConfig) -> int:
            n = parts_of(config, call)
            return max(0, n - (self.few if config.num_warps == 1 else _FEW_PARTS))

        return sorted(possible, key=too_many)

    def problems(self, config: PartsConfig, call: RowCall) -> list[str]:
        found = problems_of(config, call, _MOST_OF_THREAD, config.CHUNKS)
        # The part, and what a reduction exchanges between warps.
        n_bytes = config.BLOCK * item_of(call) + 16 * config.num_warps
        if n_bytes > _SHARED_BYTES:
            found.append(f"{n_bytes} bytes of shared memory: at most {_SHARED_BYTES} are possible")
        if (programs := call.rows * parts_of(config, call)) > _MOST_PROGRAMS:
            found.append(f"{programs} parts: at most {_MOST_PROGRAMS} are possible")
        if config.PATIENCE < 0:
            found.append(f"PATIENCE {config.PATIENCE}: at least 0")
        if dict(call.switches).get("RESIDUAL"):
            found.append("RESIDUAL: the kernel adds none")
        return found

    def is_faster(self, call: RowCall, x: torch.Tensor) -> bool:
        """Whether it is what computes x's rows by default. torch.compile cannot record Gluon."""
        if call.columns <= self.beyond or is_recorded(x):
            return False
        return bool(self.space(call, self.architecture))

    def words(self, config: PartsConfig, call: RowCall, device: torch.device) -> torch.Tensor:
        """Zeros: a word of each part, and a count of 4 bytes of each row."""
        n = call.rows * parts_of(config, call) + -(-call.rows // 2)
        return torch.zeros(n, dtype=torch.int64, device=device)

    def constants(self, config: PartsConfig, call: RowCall) -> dict[str, Any]:
        return {**super().constants(config, call), "maxnreg": _REGISTERS}

    def grid(self, config: PartsConfig, call: RowCall, processors: int) -> Grid:
        return call.rows * parts_of(config, call), 1, 1


def run_parts(
    op: PartsOp, call: RowCall, tensors: Sequence[torch.Tensor], config: PartsConfig | None = None
) -> None:
    """run(), with the words."""
    config = op.checked(config, call)
    run(op, call, (*tensors, op.words(config, call, tensors[0].device)), config)


def problems_of(config: Sized, call: RowCall, most_of_thread: int, chunks: int = 1) -> list[str]:
    """Why a thread cannot take whole vectors of such a part, at most so many elements of a chunk at
    a time."""
    powers = ("num_warps", config.num_warps), ("CHUNKS", chunks)
    found = [
        f"{name} {value}: allowed are powers of two up to 32"
        for name, value in powers
        if not 1 <= value <= 32 or value & (value - 1)
    ]
    if found:
        return found
    threads, item = 32 * config.num_warps, item_of(call)
    each = (VECTOR_BYTES // item << i for i in range(6))
    allowed = [n * threads * chunks for n in each if n <= most_of_thread]
    if config.BLOCK not in allowed:
        found.append(
            f"BLOCK {config.BLOCK}: allowed are {', '.join(map(str, allowed))} with {threads} "
            "threads" + (f" and {chunks} chunks" if chunks > 1 else "")
        )
    if call.align * item < VECTOR_BYTES or not call.aligned:
        found.append("rows do not begin at multiples of 16 bytes")
    return found


def parts_of(config: Sized, call: RowCall) -> int:
    return -(-call.columns // config.BLOCK)


def _most(config: Sized, call: RowCall) -> int:
    """The next power of two, and a number for each lane at least."""
    return max(_LANES, 1 << (parts_of(config, call) - 1).bit_length())
