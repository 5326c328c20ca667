"""tile/operand.cuh: the fragments of tiles in shared memory, swizzled or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.launching import device_kernel, given, launch, wanted
from tests.device.layouts import G, T, in_tile, pairs

FILE = "tile/operand.cu"
ROWS, OFFSET = 64, 8192  # kRowTiles * 16, kTileOffset
SCHEDULES = ("whole", "1", "1 doubled", "2", "2 doubled", "4 doubled")


def fragments(tile: Any, columns_first: bool, transpose: bool) -> Any:
    """The registers (lane, register) of a 16 x 16 tile: its four 8 x 8 matrices, in order."""
    rows_first = [(0, 0), (8, 0), (0, 8), (8, 8)]
    order = [(c, r) for r, c in rows_first] if columns_first else rows_first
    found = []
    for row, column in order:
        matrix = tile[row : row + 8, column : column + 8]
        matrix = matrix.T if transpose else matrix
        found.append(pairs(matrix[G, 2 * T], matrix[G, 2 * T + 1]))
    return np.stack(found, axis=1)


def shared_image(tile: Any, swizzled: bool) -> Any:
    """Shared memory with the tile at OFFSET."""
    image = np.zeros(OFFSET + tile.nbytes, np.uint8)
    image[OFFSET:] = in_tile(tile, swizzled)
    return given(image)


def draw(seed: int, d_head: int) -> Any:
    return np.random.default_rng(seed).integers(0, 1 << 16, (ROWS, d_head)).astype(np.uint16)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("columns_first", [False, True])
@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("d_head", [64, 128])
def test_tiles_of_16_by_16(
    headers: Path, d_head: int, swizzled: bool, columns_first: bool, transpose: bool, seed: int
) -> None:
    tile = draw(seed, d_head)
    image = shared_image(tile, swizzled)
    out = wanted((ROWS // 16, d_head // 16, 32, 4), np.uint32)
    launch(device_kernel(headers, FILE, "tiles"), image, image.size // 16, out, d_head, swizzled,
           columns_first, transpose, shared=image.size)  # fmt: skip
    for row in range(out.shape[0]):
        for column in range(out.shape[1]):
            part = tile[16 * row : 16 * row + 16, 16 * column : 16 * column + 16]
            expected = fragments(part, columns_first, transpose)
            np.testing.assert_array_equal(out[row, column], expected)


@pytest.mark.parametrize("along_rows", [False, True])
@pytest.mark.parametrize("schedule", range(len(SCHEDULES)), ids=SCHEDULES)
def test_operands(headers: Path, schedule: int, along_rows: bool, seed: int) -> None:
    """Whatever the schedule of loads, the product of a k-tile finds that k-tile."""
    tile = draw(seed, 64)
    image = shared_image(tile, True)
    n_outer = 4 if along_rows else 2
    out = wanted((4, n_outer, 32, 4), np.uint32)
    launch(device_kernel(headers, FILE, "operands"), image, image.size // 16, out, schedule,
           along_rows, shared=image.size)  # fmt: skip
    for k in range(4):
        for outer in range(n_outer):
            row, column = (k, outer) if along_rows else (outer, k)
            part = tile[16 * row : 16 * row + 16, 16 * column : 16 * column + 16]
            np.testing.assert_array_equal(out[k, outer], fragments(part, False, along_rows))


def test_one_k_tile(headers: Path, seed: int) -> None:
    tile = draw(seed, 64)
    image = shared_image(tile, True)
    out = wanted((2, 32, 4), np.uint32)
    launch(device_kernel(headers, FILE, "one_k_tile"), image, image.size // 16, out,
           shared=image.size)  # fmt: skip
    for outer in range(2):
        part = tile[16 * outer : 16 * outer + 16, 48:64]
        np.testing.assert_array_equal(out[outer], fragments(part, False, False))
