"""Kernels that Triton compiled from Gluon, in the emulator."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flash_helpers.emulator import Descriptor, LaunchOptions, LaunchReport, launch_triton
from flash_helpers.kernel_configs import DType

from ..attention import from_bits, to_bits
from ..support import aligned

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class Compiled:
    """A flash_helpers.emulator.door.triton_launch.TritonKernel."""

    ptx: str
    name: str
    n_warps: int
    shared_bytes: int
    descriptors: Sequence[Mapping[str, Any]]
    scratch_bytes: int = 0


def stored(file: str, entry: str) -> Compiled:
    """data/FILE.ptx; what its launch needs stands in lines two and three."""
    ptx = (DATA / f"{file}.ptx").read_text()
    _, launch, descriptors, *_ = ptx.splitlines()
    warps, shared = map(int, re.findall(r"\d+", launch))
    return Compiled(ptx, entry, warps, shared, json.loads(descriptors.split(" ", 2)[2]))


@dataclass
class Matmul:
    """c (rows x columns) = a (rows x depth) b (depth x columns), by blocks of 128 x 64."""

    dtype: DType
    a: Any
    b: Any

    @classmethod
    def make(cls, dtype: DType, rows: int, columns: int, depth: int, seed: int) -> Matmul:
        rng = np.random.default_rng(seed)
        a, b = aligned((rows, depth), np.uint16), aligned((depth, columns), np.uint16)
        a[:], b[:] = (to_bits(rng.standard_normal(x.shape), dtype) for x in (a, b))
        return cls(dtype, a, b)

    def kernel(self) -> Compiled:
        return stored(f"gluon_matmul_{self.dtype.name.lower()}", "gluon_matmul")

    def run(
        self, kernel: Compiled, options: LaunchOptions | None = None
    ) -> tuple[Any, LaunchReport]:
        c = aligned((len(self.a), self.b.shape[1]), np.uint16)
        c[:] = 0xFFFF
        grid = (-(-c.shape[0] // 128), -(-c.shape[1] // 64), 1)
        arguments = [*map(Descriptor.of, (self.a, self.b, c)), self.a.shape[1]]
        return c, launch_triton(kernel, grid, arguments, written=[2], options=options)

    def is_right(self, c: Any) -> bool:
        """A sum of f32 is off by less than 2^-24 of its terms for each of them; then it is rounded
        to 11 bits, or to 8."""
        a, b, result = (from_bits(x, self.dtype) for x in (self.a, self.b, c))
        exact = a @ b
        bound = a.shape[1] * 2.0**-24 * (np.abs(a) @ np.abs(b))
        rounding = 2.0 ** (-11 if self.dtype == DType.FP16 else -8)
        return bool((np.abs(result - exact) <= bound * 2 + np.abs(exact) * rounding).all())
