"""Where elements lie in registers and in shared memory, written from the PTX ISA with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

# Each lane's row in an 8 x 8 matrix, and which pair of columns it holds.
G, T = np.arange(32) // 4, np.arange(32) % 4


def pairs(low: Any, high: Any) -> Any:
    """Registers of two 16-bit elements each."""
    return low.astype(np.uint32) | high.astype(np.uint32) << 16


def a_registers(bits: Any) -> Any:
    """The registers (lane, register) of a 16 x 16 operand A of mma.m16n8k16."""
    return np.stack(
        [pairs(bits[G + row, k + 2 * T], bits[G + row, k + 2 * T + 1])
         for k in (0, 8) for row in (0, 8)], axis=1
    )  # fmt: skip


def b_registers(bits: Any) -> Any:
    """The registers (lane, register) of a 16 (k) x 8 operand B of mma.m16n8k16."""
    return np.stack([pairs(bits[k + 2 * T, G], bits[k + 2 * T + 1, G]) for k in (0, 8)], axis=1)


def accumulators(values: Any) -> Any:
    """The registers (lane, register) of 16 rows of sums, one 16 x 8 tile after the other: what a
    warp holds of the results of mma.m16n8k16, and of wgmma."""
    n_tiles = values.shape[1] // 8
    found = [values[G + row, 8 * n + 2 * T + column]
             for n in range(n_tiles) for row in (0, 8) for column in (0, 1)]  # fmt: skip
    return np.stack(found, axis=1)


def from_accumulators(registers: Any) -> Any:
    """The 16 rows that `accumulators` turns into these registers."""
    rows, columns = accumulator_places(registers.shape[1] * 2)
    values = np.empty((16, registers.shape[1] * 2), registers.dtype)
    values[rows, columns] = registers
    return values


def accumulator_places(n_columns: int) -> tuple[Any, Any]:
    """Row and column of every (lane, register)."""
    row, column = np.indices((16, n_columns))
    return accumulators(row), accumulators(column)


def warps(of_warp: Any, values: Any) -> Any:
    """Registers (warp, lane, register): `of_warp` of 16 rows after the other."""
    return np.stack([of_warp(values[i : i + 16]) for i in range(0, len(values), 16)])


def in_shared_memory(box: Any, row_bytes: int) -> Any:
    """The bytes of a box of 16-bit elements as the copy engine writes them: rows of `row_bytes`
    (32, 64 or 128) one after the other, their 16-byte pieces permuted by the swizzle of that
    size."""
    rows = np.ascontiguousarray(box).view(np.uint8).reshape(-1, row_bytes)
    pieces = rows.reshape(len(rows), row_bytes // 16, 16)
    row, piece = np.indices(pieces.shape[:2])
    permuted = np.empty_like(pieces)
    permuted[row, piece ^ row * row_bytes // 128 % (row_bytes // 16)] = pieces
    return permuted.ravel()


def chunks(matrix: Any, columns: int) -> Any:
    """A matrix cut into stripes of so many columns: [stripe, row, column in the stripe]."""
    rows = len(matrix)
    return matrix.reshape(rows, -1, columns).transpose(1, 0, 2)


def in_tile(rows: Any, swizzled: bool) -> Any:
    """The bytes of rows of 16-bit elements in a tile of tile/shared_tile.h: swizzled, chunk c of
    row r lies in place c ^ (r % 8)."""
    pieces = rows.view(np.uint8).reshape(len(rows), -1, 16)
    row, chunk = np.indices(pieces.shape[:2])
    placed = np.empty_like(pieces)
    placed[row, chunk ^ row % 8 if swizzled else chunk] = pieces
    return placed.ravel()
