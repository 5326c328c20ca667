"""ptx/ldmatrix.cuh and ptx/stmatrix.cuh: which lane holds which element."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.launching import SM90, device_kernel, given, launch, wanted

FAR = 1024


def matrix_rows(rng: Any, span: int) -> Any:
    """For each lane a place of its own for 16 bytes, anywhere below `span`: the row l % 8 of matrix
    l / 8."""
    return given(16 * rng.choice(span // 16, 32, replace=False), np.int32)


def registers_of(matrices: Any, transposed: bool) -> Any:
    """(lane, register) of [matrix, row, column]: row lane / 4, columns 2 (lane % 4) and the next;
    `transposed`: rows and columns exchanged."""
    if transposed:
        matrices = matrices.transpose(0, 2, 1)
    pairs = matrices.astype(np.uint32).reshape(4, 32, 2)
    return (pairs[..., 0] | pairs[..., 1] << 16).T


@pytest.mark.parametrize("offset", [0, FAR])
@pytest.mark.parametrize("transposed", [False, True], ids=["ldmatrix_x4", "ldmatrix_x4_trans"])
def test_ldmatrix(headers: Path, transposed: bool, offset: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tile, rows = given(rng.integers(0, 1 << 16, 2048), np.uint16), matrix_rows(rng, 2048)
    registers = wanted((32, 4), np.uint32)
    which = 2 * transposed + (offset != 0)
    launch(device_kernel(headers, "ptx/ldmatrix.cu"), tile, rows, registers, which)
    places = (rows[:, None] + offset) // 2 + np.arange(8)
    expected = registers_of(tile[places].reshape(4, 8, 8), transposed)
    np.testing.assert_array_equal(registers, expected)


@pytest.mark.parametrize(("transposed", "offset"), [(False, 0), (True, 0), (True, FAR)])
def test_stmatrix_is_the_inverse(headers: Path, transposed: bool, offset: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrices, rows = rng.integers(0, 1 << 16, (4, 8, 8)), matrix_rows(rng, 2048 - offset)
    tile = wanted(1024, np.uint16)
    kernel = device_kernel(headers, "ptx/stmatrix.cu", architecture=SM90)
    launch(kernel, given(registers_of(matrices, transposed)), rows, tile, transposed, offset != 0)
    expected = np.zeros(1024, np.uint16)
    expected[(rows[:, None] + offset) // 2 + np.arange(8)] = matrices.reshape(32, 8)
    np.testing.assert_array_equal(tile, expected)
