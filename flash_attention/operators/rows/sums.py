"""The columns of one or two matrices of partial sums, added in a fixed order by one launch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from ...triton_kit.op import Grid, StandInTensor, Work
from ..launching import Operator, run


@dataclass(frozen=True)
class SumConfig:
    """BLOCK columns a program, PARTS rows at a time: few columns and many rows, since there are
    more programs and more loads under way then."""

    BLOCK: int = 32
    PARTS: int = 128
    num_warps: int = 8

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class SumCall:
    """The matrices' rows, their columns, and the types of the sums."""

    parts: tuple[int, ...]
    columns: int
    dtypes: tuple[str, ...]


class ColumnSums(Operator[SumConfig, SumCall]):
    """The tensors are two contiguous matrices in fp32 and their sums; where there is only one
    matrix, it is given twice."""

    name = "column-sums"
    config_type = SumConfig
    written = (2, 3)

    def kernel(self) -> Any:
        from .blocks import sum_partials

        return sum_partials

    def space(self, call: SumCall, architecture: int) -> list[SumConfig]:
        return [SumConfig(), SumConfig(16, 256), SumConfig(32, 256), SumConfig(64, 64)]

    def problems(self, config: SumConfig, call: SumCall) -> list[str]:
        return []

    def arguments(self, config: SumConfig, call: SumCall, tensors: Sequence[Any]) -> list[Any]:
        align = _align(call)
        return [*tensors, call.parts[0], call.parts[-1], call.columns // align]

    def constants(self, config: SumConfig, call: SumCall) -> dict[str, Any]:
        return {"ALIGN": _align(call), **config.as_dict()}

    def grid(self, config: SumConfig, call: SumCall, processors: int) -> Grid:
        return len(call.parts) * -(-call.columns // config.BLOCK), 1, 1

    def stand_ins(self, call: SumCall) -> Sequence[StandInTensor]:
        partial = StandInTensor((32, call.columns), "float32")
        sums = [StandInTensor((call.columns,), dtype) for dtype in call.dtypes]
        return partial, partial, sums[0], sums[-1]

    def code(self, config: SumConfig, call: SumCall) -> tuple[SumConfig, SumCall]:
        return config, replace(call, parts=(32,) * len(call.parts), columns=_align(call))

    def key(self, call: SumCall) -> dict[str, Any]:
        return {"rows": list(call.parts), "columns": call.columns, "dtypes": list(call.dtypes)}

    def work(self, call: SumCall) -> Work:
        n = sum(call.parts) * call.columns
        return Work(flop=n, n_bytes=4 * n)


def _align(call: SumCall) -> int:
    return math.gcd(16, call.columns)


_OP = ColumnSums()


def column_sums(
    partials: Sequence[torch.Tensor], dtypes: Sequence[torch.dtype]
) -> list[torch.Tensor]:
    """The sums of the columns of one or two contiguous fp32 matrices, as vectors of these types."""
    columns = partials[0].shape[1]
    out = [
        partial.new_empty(columns, dtype=dtype)
        for partial, dtype in zip(partials, dtypes, strict=True)
    ]
    call = SumCall(
        tuple(partial.shape[0] for partial in partials), columns,
        tuple(str(dtype).removeprefix("torch.") for dtype in dtypes),
    )  # fmt: skip
    run(_OP, call, (partials[0], partials[-1], out[0], out[-1]))
    return out
