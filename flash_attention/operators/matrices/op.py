"""The kernels for products of matrices as Ops: what a launch is, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from ...triton_kit.op import Grid, StandInTensor, Work
from ..checked import aligned
from ..launching import Operator
from .config import DIRECT, MatmulConfig, configs, kind_of_product, problems

_INT32 = 2**31 - 1
_MOST_ALIGN = 16
# Of the product, in a thread's registers: with so many, an epilogue computes half of them at once.
_MANY_NUMBERS = 128


@dataclass(frozen=True)
class MatmulCall:
    """A launch: m x k times k x n. `rows`: of a, b, whether their rows are contiguous (else their
    columns are). `strides`: between neighbouring rows (else columns) of a, b, residual, output."""

    m: int
    n: int
    k: int
    dtype: str
    rows: tuple[bool, bool]
    strides: tuple[int, int, int, int]
    bias: bool = False
    activation: str = "none"
    residual: bool = False
    precision: str = "ieee"
    aligned: bool = True

    @property
    def item(self) -> int:
        return 4 if self.dtype == "float32" else 2

    @property
    def wide(self) -> bool:
        """Some element is farther from the first than a 32-bit number says."""
        a, b, residual, out = self.strides
        lines = (self.m if self.rows[0] else self.k, self.k if self.rows[1] else self.n)
        reach = (lines[0] * a, lines[1] * b, self.m * residual, self.m * out)
        return max(reach) > _INT32

    @property
    def aligns(self) -> dict[str, int]:
        """The powers of two that divide sizes and strides: in units of them the kernel gets those,
        and so knows where 16 bytes can be loaded at once."""
        a, b, *rest = self.strides
        numbers = {"M": (self.m,), "N": (self.n,), "K": (self.k,), "A": (a,), "B": (b,)}
        return {
            f"{name}_ALIGN": math.gcd(_MOST_ALIGN, *values)
            for name, values in (*numbers.items(), ("OUT", rest))
        }


def matmul_call(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor | None,
    out: torch.Tensor, activation: str, precision: str,
) -> MatmulCall:  # fmt: skip
    """Of tensors whose rows or columns are contiguous (`dense`)."""
    rows = (_has_rows(a), _has_rows(b))
    strides = (
        a.stride(0 if rows[0] else 1), b.stride(0 if rows[1] else 1),
        0 if residual is None else residual.stride(0), out.stride(0),
    )  # fmt: skip
    given = [x for x in (a, b, bias, residual, out) if x is not None]
    return MatmulCall(
        a.shape[0], b.shape[1], a.shape[1], str(a.dtype).removeprefix("torch."), rows, strides,
        bias is not None, activation, residual is not None, precision, aligned(*given),
    )  # fmt: skip


def dense(x: torch.Tensor) -> torch.Tensor:
    """A matrix of the same elements with contiguous rows or columns: x itself, or a copy."""
    lies = any(x.stride(i) == 1 or x.shape[i] == 1 for i in (0, 1))
    return x if lies else x.contiguous()


def _has_rows(x: torch.Tensor) -> bool:
    return x.stride(1) == 1 or x.shape[1] == 1


@dataclass(frozen=True)
class TiledMatmul(Operator[MatmulConfig, MatmulCall]):
    """v1 to v4. The tensors are a, b, bias, residual (a where there is none) and the output;
    `architecture` says which configurations there are."""

    architecture: int = 80
    name = "matmul"
    config_type = MatmulConfig
    written = (4,)
    contiguous = False

    def kernel(self) -> Any:
        from .kernels import tiled

        return tiled

    def space(self, call: MatmulCall, architecture: int) -> list[MatmulConfig]:
        kind = kind_of_product(call.item, call.precision)
        return configs(call.m, call.n, kind, architecture)

    def problems(self, config: MatmulConfig, call: MatmulCall) -> list[str]:
        return problems(config, call.item, self.architecture)

    def arguments(
        self, config: MatmulConfig, call: MatmulCall, tensors: Sequence[Any]
    ) -> list[Any]:
        a, b, residual, out = call.strides
        by = call.aligns
        numbers = {
            "M": (call.m,), "N": (call.n,), "K": (call.k,), "A": (a,), "B": (b,),
            "OUT": (residual, out),
        }  # fmt: skip
        units = [n // by[f"{name}_ALIGN"] for name, values in numbers.items() for n in values]
        return [*tensors, *units]

    def constants(self, config: MatmulConfig, call: MatmulCall) -> dict[str, Any]:
        plain = not call.bias and not call.residual and call.activation == "none"
        # In one part, without a residual, that tile is faster, and spills nothing.
        hopper = self.architecture >= 90 and (config.BLOCK_M, config.BLOCK_N) == (128, 256)
        whole = plain or (hopper and not call.residual)
        return {
            "A_ROWS": call.rows[0], "B_ROWS": call.rows[1], **call.aligns, "WIDE": call.wide,
            "EVEN_K": call.k % config.BLOCK_K == 0, "PRECISION": call.precision,
            "BIAS": call.bias, "ACTIVATION": call.activation, "RESIDUAL": call.residual,
            "PARTS": 1 if whole else parts_of_epilogue(config), **config.as_dict(),
        }  # fmt: skip

    def grid(self, config: MatmulConfig, call: MatmulCall, processors: int) -> Grid:
        return config.tiles(call.m, call.n), 1, 1

    def stand_ins(self, call: MatmulCall) -> Sequence[StandInTensor]:
        address = 0 if call.aligned else 2
        return [StandInTensor((32, 32), call.dtype, address)] * 5

    def code(self, config: MatmulConfig, call: MatmulCall) -> tuple[MatmulConfig, MatmulCall]:
        """No number is specialised for; what the code relies on is kept."""
        by = call.aligns
        k = by["K_ALIGN"] if call.k % config.BLOCK_K else config.BLOCK_K
        far = 2**20 if call.wide else 0  # its square is beyond 32 bits
        m, out = far + by["M_ALIGN"], far + by["OUT_ALIGN"]
        strides = (by["A_ALIGN"], by["B_ALIGN"], by["OUT_ALIGN"], out)
        return config, replace(call, m=m, n=by["N_ALIGN"], k=k, strides=strides)

    def key(self, call: MatmulCall) -> dict[str, Any]:
        return asdict(replace(call, strides=(0,) * 4)) | call.aligns | {"rows": list(call.rows)}

    def work(self, call: MatmulCall) -> Work:
        """Operands read once, the output written once."""
        elements = call.m * call.k + call.k * call.n + call.m * call.n * (1 + call.residual)
        return Work(2 * call.m * call.n * call.k, call.item * (elements + call.n * call.bias))


def parts_of_epilogue(config: MatmulConfig) -> int:
    """In how many parts a program computes what follows a product."""
    return 1 if config.BLOCK_M * config.BLOCK_N // (32 * config.num_warps) < _MANY_NUMBERS else 2


@dataclass(frozen=True)
class DirectMatmul(TiledMatmul):
    """v0. The tensors are a, b and the output."""

    name = "matmul-direct"
    written = (2,)

    def kernel(self) -> Any:
        from .kernels import direct

        return direct

    def space(self, call: MatmulCall, architecture: int) -> list[MatmulConfig]:
        return [DIRECT]

    def arguments(
        self, config: MatmulConfig, call: MatmulCall, tensors: Sequence[Any]
    ) -> list[Any]:
        by_line = [
            (stride, 1) if rows else (1, stride)
            for stride, rows in zip(call.strides, call.rows, strict=False)
        ]
        return [*tensors, call.m, call.n, call.k, *by_line[0], *by_line[1], call.strides[3]]

    def constants(self, config: MatmulConfig, call: MatmulCall) -> dict[str, Any]:
        return {
            "BLOCK_M": config.BLOCK_M, "BLOCK_N": config.BLOCK_N, "num_warps": config.num_warps,
        }  # fmt: skip

    def stand_ins(self, call: MatmulCall) -> Sequence[StandInTensor]:
        return super().stand_ins(call)[:3]
