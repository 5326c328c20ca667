"""The columns of a matrix of partial sums, added in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ...triton_kit.op import Grid, StandInTensor, Work
from ..launching import Operator, run


@dataclass(frozen=True)
class SumConfig:
    """BLOCK columns a program, PARTS rows at a time."""

    BLOCK: int = 128
    PARTS: int = 32
    num_warps: int = 4

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


class ColumnSums(Operator[SumConfig, tuple[int, int]]):
    """(rows, columns) of a contiguous matrix in fp32."""

    name = "column-sums"
    config_type = SumConfig
    written = (1,)

    def kernel(self) -> Any:
        from .blocks import sum_partials

        return sum_partials

    def space(self, problem: tuple[int, int], architecture: int) -> list[SumConfig]:
        return [SumConfig(), SumConfig(64), SumConfig(32)]

    def problems(self, config: SumConfig, problem: tuple[int, int]) -> list[str]:
        return []

    def arguments(
        self, config: SumConfig, problem: tuple[int, int], tensors: Sequence[Any]
    ) -> list[Any]:
        return [*tensors, *problem]

    def constants(self, config: SumConfig, problem: tuple[int, int]) -> dict[str, Any]:
        return config.as_dict()

    def grid(self, config: SumConfig, problem: tuple[int, int], processors: int) -> Grid:
        return -(-problem[1] // config.BLOCK), 1, 1

    def stand_ins(self, problem: tuple[int, int]) -> Sequence[StandInTensor]:
        return StandInTensor(problem, "float32"), StandInTensor(problem[1:], "float32")

    def code(
        self, config: SumConfig, problem: tuple[int, int]
    ) -> tuple[SumConfig, tuple[int, int]]:
        return config, (32, 32)

    def key(self, problem: tuple[int, int]) -> dict[str, Any]:
        return {"rows": problem[0], "columns": problem[1]}

    def work(self, problem: tuple[int, int]) -> Work:
        n = problem[0] * problem[1]
        return Work(flop=n, n_bytes=4 * n)


_OP = ColumnSums()


def column_sums(partial: torch.Tensor) -> torch.Tensor:
    """The sums of the columns of a contiguous fp32 matrix."""
    rows, columns = partial.shape
    out = partial.new_empty(columns)
    run(_OP, (rows, columns), (partial, out))
    return out
