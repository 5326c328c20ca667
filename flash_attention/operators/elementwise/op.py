"""The elementwise kernels as Ops: which numbers they take, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...triton_kit.op import Grid, StandInTensor, Work
from ..launching import Operator
from .problem import MOST_DIMENSIONS, Elements

_WIDE = 2**32


@dataclass(frozen=True)
class BlockConfig:
    """Elements of a program, and its warps."""

    BLOCK: int = 1024
    num_warps: int = 4

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class Elementwise(Operator[BlockConfig, Elements]):
    """`kind`: add, add_scalar or an activation; `grad`: the gradient through an activation. The
    tensors are x, y (x once more where there is one operand) and the output."""

    kind: str
    grad: bool = False
    config_type = BlockConfig
    written = (2,)
    contiguous = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"elementwise-{self.kind}{'-grad' * self.grad}"

    def kernel(self) -> Any:
        from .kernels import flat

        return flat

    def kernel_for(self, config: BlockConfig, problem: Elements) -> Any:
        from .kernels import strided

        return self.kernel() if problem.flat else strided

    def space(self, problem: Elements, architecture: int) -> list[BlockConfig]:
        return [BlockConfig(*sizes) for sizes in ((1024, 4), (2048, 4), (4096, 8), (8192, 8))]

    def problems(self, config: BlockConfig, problem: Elements) -> list[str]:
        found = []
        if config.BLOCK < 32 or config.BLOCK & (config.BLOCK - 1):
            found.append(f"BLOCK {config.BLOCK}: allowed are powers of two from 32")
        if config.num_warps not in (1, 2, 4, 8, 16):
            found.append(f"num_warps {config.num_warps}: allowed are 1, 2, 4, 8 and 16")
        return found

    def arguments(
        self, config: BlockConfig, problem: Elements, tensors: Sequence[Any]
    ) -> list[Any]:
        if problem.flat:
            return [*tensors, problem.n, problem.alpha]
        missing = MOST_DIMENSIONS - len(problem.shape)
        sizes = [1] * missing + list(problem.shape)
        strides = [n for own in problem.strides for n in (*[0] * missing, *own)]
        return [*tensors, problem.n, *sizes[1:], *strides, problem.alpha]

    def constants(self, config: BlockConfig, problem: Elements) -> dict[str, Any]:
        wide = {} if problem.flat else {"WIDE": problem.wide}
        return {"KIND": self.kind, "GRAD": self.grad, **wide, **config.as_dict()}

    def grid(self, config: BlockConfig, problem: Elements, processors: int) -> Grid:
        return -(-problem.n // config.BLOCK), 1, 1

    def stand_ins(self, problem: Elements) -> Sequence[StandInTensor]:
        address = 0 if problem.aligned else 2
        return [StandInTensor(problem.shape, problem.dtype, address)] * 3

    def code(self, config: BlockConfig, problem: Elements) -> tuple[BlockConfig, Elements]:
        size = _WIDE if problem.wide else 100
        shape, stride = ((size,), (1,)) if problem.flat else ((size, 3), (9, 2))
        return config, replace(problem, shape=shape, strides=(stride,) * 3, alpha=0.5)

    def key(self, problem: Elements) -> dict[str, Any]:
        return asdict(replace(problem, alpha=0.0))

    def work(self, problem: Elements) -> Work:
        item = 4 if problem.dtype == "float32" else 2
        operands = 2 if self.grad or self.kind == "add" else 1
        return Work(flop=problem.n, n_bytes=(operands + 1) * problem.n * item)
