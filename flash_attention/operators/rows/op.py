"""Kernels that go over the rows of matrices: what such a call is, and its Op."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from ...triton_kit.op import Grid, StandInTensor, Work
from ..checked import aligned
from ..launching import Operator

# The most elements of a row that a program keeps in its registers.
MOST_WHOLE = 32768
VECTOR_BYTES = 16  # that a thread loads at a time
_SHORT = 1024  # elements of rows that go several to a program
_WARPS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class RowConfig:
    """A program computes ROWS rows, BLOCK columns at a time: all of them at once (WHOLE), or in a
    loop, which reads what it needs again."""

    ROWS: int = 1
    BLOCK: int = 1024
    WHOLE: bool = True
    num_warps: int = 4

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


LOOPED = RowConfig(1, 4096, False, 8)


def warps_for(numbers: int, *, most: int = 16, of_thread: int = 64) -> int:
    """512 numbers a warp, but no more than `most` warps, unless a thread would have more numbers
    than that."""
    return max(1, min(most, numbers // 512), numbers // (32 * of_thread))


@dataclass(frozen=True)
class RowCall:
    """A launch: `rows` times `columns`, the element types and dimensions of the tensors, the
    distance of the rows of those that are matrices, constants and numbers of the kernel. `align`: a
    power of two that divides columns and strides, which the kernel gets in units of it: that is how
    Triton knows, and without it loads no more than an element at a time. `programs`: of the grid, 0
    for one per ROWS."""

    rows: int
    columns: int
    layouts: tuple[tuple[int, str], ...]
    strides: tuple[int, ...]
    align: int
    aligned: bool
    switches: tuple[tuple[str, Any], ...] = ()
    numbers: tuple[float, ...] = ()
    integers: tuple[int, ...] = ()
    programs: int = 0


def item_of(call: RowCall) -> int:
    """The bytes of an element of the first tensor."""
    return 4 if call.layouts[0][1] == "float32" else 2


def row_call(
    rows: int, columns: int, tensors: Sequence[torch.Tensor], matrices: Sequence[torch.Tensor],
    numbers: Sequence[float] = (), integers: Sequence[int] = (), programs: int = 0,
    **switches: Any,
) -> RowCall:  # fmt: skip
    """`matrices` are those of the tensors whose strides the kernel takes, in its order."""
    strides = tuple(matrix.stride(0) for matrix in matrices)
    layouts = tuple((t.dim(), str(t.dtype).removeprefix("torch.")) for t in tensors)
    return RowCall(
        rows, columns, layouts, strides, math.gcd(16, columns, *strides), aligned(*tensors),
        tuple(switches.items()), tuple(numbers), tuple(integers), programs,
    )  # fmt: skip


def as_rows(x: torch.Tensor) -> torch.Tensor:
    """A matrix of the same elements, whose rows are x's last dimension: x itself where its strides
    allow it, else a copy."""
    matrix = x.reshape(-1, x.shape[-1])
    return matrix if matrix.stride(1) == 1 or matrix.shape[1] == 1 else matrix.contiguous()


@dataclass(frozen=True)
class RowOp(Operator[RowConfig, RowCall]):
    """`module`: of operators, with the kernel `function`; `write` has the positions of the tensors
    that it writes, `moves` how many matrices of the problem's size go to and fro. Rows of up to
    `most_whole` elements stay in registers, without spills; longer ones go by `looped`. `warps`: of
    a program that holds so many elements. Short rows go several to a program, `together` elements
    (`together_warps`, if not as many as `warps` says), rows of up to `pairs` by two, unless there
    would be fewer than `programs`.
    """

    module: str
    function: str
    write: tuple[int, ...]
    moves: int = 2
    most_whole: int = MOST_WHOLE
    looped: RowConfig = LOOPED
    warps: Callable[[int], int] = warps_for
    together: int = 1024
    together_warps: int = 0
    pairs: int = 0
    programs: int = 0
    zeroed: tuple[int, ...] = ()
    config_type = RowConfig
    contiguous = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.module}.{self.function}"

    @property
    def written(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.write

    def kernel(self) -> Any:
        module = importlib.import_module(f"..{self.module}", __package__)
        return getattr(module, self.function)

    def config_for(self, rows: int, columns: int) -> RowConfig:
        """Short rows several at a time, long ones in a loop."""
        block = max(16, 1 << (columns - 1).bit_length())
        if block > self.most_whole:
            return self.looped
        each = min(16, self.together // block) if block <= _SHORT else 1 + (block == self.pairs)
        while each > 1 and rows < each * self.programs:
            each //= 2
        warps = self.together_warps if each * block == self.together else 0
        return RowConfig(each, block, True, warps or self.warps(each * block))

    def space(self, call: RowCall, architecture: int) -> list[RowConfig]:
        """The default, with more and fewer warps, and the loop."""
        first = self.config_for(call.rows, call.columns)
        warps = [w for w in (first.num_warps // 2, 2 * first.num_warps) if w in _WARPS]
        return [first, *(replace(first, num_warps=w) for w in warps), *({self.looped} - {first})]

    def problems(self, config: RowConfig, call: RowCall) -> list[str]:
        found = [
            f"{name} {value}: allowed are powers of two"
            for name, value in (("ROWS", config.ROWS), ("BLOCK", config.BLOCK))
            if value < 1 or value & (value - 1)
        ]
        if config.num_warps not in _WARPS:
            found.append(f"num_warps {config.num_warps}: allowed are {', '.join(map(str, _WARPS))}")
        if config.WHOLE and call.columns > config.BLOCK:
            found.append(f"BLOCK {config.BLOCK}: rows of {call.columns} need more, or WHOLE False")
        return found

    def arguments(self, config: RowConfig, call: RowCall, tensors: Sequence[Any]) -> list[Any]:
        columns, *strides = (n // call.align for n in (call.columns, *call.strides))
        return [*tensors, call.rows, columns, *strides, *call.integers, *call.numbers]

    def constants(self, config: RowConfig, call: RowCall) -> dict[str, Any]:
        return {**dict(call.switches), "ALIGN": call.align, **config.as_dict()}

    def grid(self, config: RowConfig, call: RowCall, processors: int) -> Grid:
        return call.programs or -(-call.rows // config.ROWS), 1, 1

    def stand_ins(self, call: RowCall) -> Sequence[StandInTensor]:
        address = 0 if call.aligned else 2
        return [StandInTensor((32,) * dims, dtype, address) for dims, dtype in call.layouts]

    def code(self, config: RowConfig, call: RowCall) -> tuple[RowConfig, RowCall]:
        """No number is specialised for; `align` says what the code relies on."""
        same: dict[str, Any] = {
            "strides": (32,) * len(call.strides), "numbers": (0.5,) * len(call.numbers),
            "integers": (32,) * len(call.integers),
        }  # fmt: skip
        return config, replace(call, rows=32, columns=call.align, programs=1, **same)

    def key(self, call: RowCall) -> dict[str, Any]:
        return {
            "kernel": self.name, "rows": call.rows, "columns": call.columns, "align": call.align,
            "layouts": [list(layout) for layout in call.layouts],
            "switches": [list(switch) for switch in call.switches],
        }  # fmt: skip

    def work(self, call: RowCall) -> Work:
        n = call.rows * call.columns
        return Work(flop=8 * n, n_bytes=self.moves * n * item_of(call))
