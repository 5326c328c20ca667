"""BlockCopy: rows of global memory as a tile in shared memory."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import RaceError
from flash_helpers.kernel_configs import FlashForwardKernelConfig
from tests.device.launching import device_kernel, given, launch, wanted
from tests.device.layouts import in_tile

from .configs import config

FILE = "sm80/block_copy.cu"
ROWS, OFFSET = 64, 4096
CONFIGS = [
    config(d_head=d_head, n_warps=n_warps, swizzled=swizzled, async_copy=async_copy)
    for (d_head, n_warps), swizzled, async_copy in itertools.product(
        [(64, 2), (64, 4), (128, 4), (128, 8)], [False, True], [False, True]
    )
]


def block_of(seed: int, n_rows: int, d_head: int, pad: int) -> tuple[Any, Any]:
    """Memory with `pad` elements between rows, which ends with the last row, and the rows."""
    rng = np.random.default_rng(seed)
    pitch = d_head + pad
    memory = given(rng.integers(0, 1 << 16, max(n_rows, 1) * pitch - pad), np.uint16)
    rows = np.zeros((ROWS, d_head), np.uint16)
    for row in range(n_rows):
        rows[row] = memory[row * pitch : row * pitch + d_head]
    return memory, rows


@pytest.mark.parametrize("n_rows", [64, 63, 37, 1, 0, 100])
@pytest.mark.parametrize("kernel_config", CONFIGS, ids=str)
def test_rows_become_a_tile(
    headers: Path, kernel_config: FlashForwardKernelConfig, n_rows: int, seed: int
) -> None:
    """Rows that do not exist are zeros, and nothing after the last one is read."""
    d_head = kernel_config.d_head
    memory, rows = block_of(seed, n_rows if n_rows < ROWS else ROWS, d_head, pad=24)
    out = wanted(rows.nbytes, np.uint8)
    kernel = device_kernel(headers, FILE, "copy", config=kernel_config)
    for bounded in (True, False) if n_rows >= ROWS else (True,):
        launch(kernel, memory, np.int64(2 * (d_head + 24)), n_rows, out, bounded,
               block=kernel_config.n_threads(), shared=OFFSET + out.size)  # fmt: skip
        np.testing.assert_array_equal(out, in_tile(rows, kernel_config.swizzled))


@pytest.mark.parametrize("async_copy", [False, True])
def test_a_wait_leaves_as_many_groups_as_it_says(
    headers: Path, async_copy: bool, seed: int
) -> None:
    kernel_config = config(async_copy=async_copy)
    memory, rows = block_of(seed, ROWS, 64, pad=0)
    out = wanted(rows.nbytes, np.uint8)

    def run(second: bool) -> None:
        launch(device_kernel(headers, FILE, "two", config=kernel_config), memory, np.int64(128),
               out, second, block=128, shared=2 * out.size)  # fmt: skip

    run(False)
    np.testing.assert_array_equal(out, in_tile(rows, True))
    if async_copy:
        with pytest.raises(RaceError, match=r"in-flight cp\.async"):
            run(True)
    else:  # through registers: stored when the call returns
        run(True)
