"""Kernels of rows whose configuration is chosen by a function of the call: what those of a row a
program and of a row a cluster have in common, as Ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...triton_kit.op import Grid, StandInTensor
from .op import RowCall
from .parts_op import GluonOp, S

MOST_OF_THREAD = 64  # elements at a time


@dataclass(frozen=True)
class BestOp(GluonOp[S]):
    """`best`: the configuration of a call, if this is what is fastest."""

    best: Callable[[RowCall], S | None]

    @property
    def written(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.plain.write

    def space(self, call: RowCall, architecture: int) -> list[S]:
        best = self.best(call)
        return [best] if best and not self.problems(best, call) else []

    def arguments(self, config: S, call: RowCall, tensors: Sequence[Any]) -> list[Any]:
        columns, *strides = (n // call.align for n in (call.columns, *call.strides))
        return [*tensors, call.rows, columns, *strides, *call.integers, *call.numbers]

    def grid(self, config: S, call: RowCall, processors: int) -> Grid:
        return call.rows, 1, 1

    def stand_ins(self, call: RowCall) -> Sequence[StandInTensor]:
        return self.plain.stand_ins(call)
