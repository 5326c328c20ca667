"""Runs kernels/gemm.cu in the emulator."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flash_helpers.build.kernel_ptx import source_ptx
from flash_helpers.emulator import (
    EmulatedKernel,
    LaunchOptions,
    LaunchReport,
    memory_range_of,
    pack_tensor_map,
)

from ..support import aligned

FOLDER = Path(__file__).parent / "kernels"
SHARED_BYTES = 5 * 64 * 64 * 2 + 4 * 8


def hopper_ptx(file: str, source: str | None = None) -> str:
    """nvcc's PTX for sm_90a of a file of kernels/, or of `source` in its place, cached."""
    path = FOLDER / file
    text = source or path.read_text()
    return source_ptx(f'#line 1 "{path}"\n{text}', path.stem, "compute_90a", FOLDER)


def matrix_map(array: Any, box: tuple[int, int] = (64, 64), swizzle: int = 128) -> bytes:
    rows, columns = array.shape
    return pack_tensor_map(
        array.ctypes.data, 2, (columns, rows), (array.strides[0],), box, swizzle=swizzle
    )


@dataclass
class Gemm:
    """c (rows x columns) = a (rows x depth) b (columns x depth)^T, of any sizes."""

    a: Any
    b: Any

    @classmethod
    def make(cls, rows: int, columns: int, depth: int, seed: int) -> Gemm:
        rng = np.random.default_rng(seed)
        a, b = aligned((rows, depth), np.float16), aligned((columns, depth), np.float16)
        a[:], b[:] = rng.standard_normal(a.shape), rng.standard_normal(b.shape)
        return cls(a, b)

    def run(
        self, kernel: EmulatedKernel, options: LaunchOptions | None = None, grid: int = 1
    ) -> tuple[Any, LaunchReport]:
        c = aligned((len(self.a), len(self.b)), np.float16)
        c[:] = np.nan
        tiles = [-(-n // 64) for n in (*c.shape, self.a.shape[1])]
        maps = b"".join(matrix_map(array) for array in (self.a, self.b, c))
        inputs = [memory_range_of(getattr(self, name), name, writable=False) for name in "ab"]
        report = kernel.launch(
            (grid, 1, 1),
            (160, 1, 1),
            SHARED_BYTES,
            [(maps + struct.pack("<3i", *tiles)).ljust(kernel.parameter_sizes[0], b"\0")],
            [*inputs, memory_range_of(c, "c")],
            options=options,
        )
        return c, report

    def is_right(self, c: Any) -> bool:
        expected = self.a.astype(np.float64) @ self.b.astype(np.float64).T
        return bool(np.allclose(c.astype(np.float64), expected, rtol=2e-3, atol=2e-3))
