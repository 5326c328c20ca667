"""Epilogue of the Hopper family: rows normalised, rounded, staged and stored by the copy engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import RaceError
from flash_helpers.kernel_configs import HopperForwardKernelConfig
from tests.device.launching import SM90, device_kernel, given, launch, wanted
from tests.device.layouts import accumulators, warps
from tests.emulator.attention import to_bits

from .arguments import Launch
from .configs import BF16, FP16, config

FILE = "sm90/epilogue.cu"
ROWS, HEADS, BATCH = 64, 3, 2
CONFIGS = [
    config(FP16, 64),
    config(BF16, 128),
    config(FP16, 96),  # rows of 64 bytes
    config(BF16, 192),
    config(FP16, 256, block_n=80),
]
each_config = pytest.mark.parametrize("kernel_config", CONFIGS, ids=str)


def by_row(values: Any) -> Any:
    """The registers (thread, half) of one number for each row."""
    halves = values.reshape(4, 2, 8).transpose(0, 2, 1)  # warp, lane / 4, half
    return given(np.repeat(halves, 4, axis=1).reshape(128, 2), np.float32)


class Rows:
    """The rows of a warpgroup, and memory for the outputs of all heads, with gaps between rows."""

    def __init__(self, c: HopperForwardKernelConfig, n_queries: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.config, self.n_queries = c, n_queries
        self.o = rng.standard_normal((ROWS, c.d_head)).astype(np.float32)
        self.inverse = rng.uniform(0.1, 2, ROWS).astype(np.float32)
        self.lse = rng.standard_normal(ROWS).astype(np.float32)
        self.memory = wanted((BATCH, n_queries, HEADS, c.d_head + 8), np.uint16)
        self.log_sum_exp = wanted((BATCH, HEADS, n_queries), np.float32)

    def run(
        self, headers: Path, row: int, again: bool, waits: bool = True, with_lse: bool = True
    ) -> None:
        """Stores them for head 1 of batch 1, and if `again` for the next head too."""
        problem = Launch(self.n_queries, 64, batch=BATCH, heads=HEADS, kv_heads=HEADS,
                         o=self.memory, lse=self.log_sum_exp if with_lse else None)  # fmt: skip
        kernel = device_kernel(headers, FILE, "kernel", SM90, self.config)
        launch(kernel, problem.args(self.config),
               given(warps(accumulators, self.o).reshape(128, -1)), by_row(self.inverse),
               by_row(self.lse), row, 1, 1, again, waits, block=128,
               shared=2 * ROWS * self.config.d_head,
               memory=[self.memory, self.log_sum_exp])  # fmt: skip

    def check(self, row: int, heads: list[int], with_lse: bool = True) -> None:
        """Checks that the rows are there, and that nothing else has been touched."""
        n = min(ROWS, self.n_queries - row)
        memory = wanted(self.memory.shape, np.uint16)
        rounded = to_bits(self.o * self.inverse[:, None], self.config.dtype)[:n]
        memory[1, row : row + n, heads, : self.config.d_head] = rounded
        np.testing.assert_array_equal(self.memory, memory)
        lse = wanted(self.log_sum_exp.shape, np.float32)
        if with_lse:
            lse[1, heads, row : row + n] = self.lse[:n]
        np.testing.assert_array_equal(self.log_sum_exp, lse)


@pytest.mark.parametrize("with_lse", [False, True])
@pytest.mark.parametrize(("n_queries", "row"), [(64, 0), (200, 64), (65, 64), (100, 64), (79, 0)])
@each_config
def test_rows_that_exist_are_stored(
    headers: Path, kernel_config: HopperForwardKernelConfig, n_queries: int, row: int,
    with_lse: bool, seed: int,
) -> None:  # fmt: skip
    rows = Rows(kernel_config, n_queries, seed)
    rows.run(headers, row, again=False, with_lse=with_lse)
    rows.check(row, [1], with_lse)


@each_config
def test_memory_is_staged_again_when_it_has_been_read(
    headers: Path, kernel_config: HopperForwardKernelConfig, seed: int
) -> None:
    rows = Rows(kernel_config, 200, seed)
    rows.run(headers, 64, again=True)
    rows.check(64, [1, 2])
    with pytest.raises(RaceError, match="write to the source of a bulk store in flight"):
        rows.run(headers, 64, again=True, waits=False)


@each_config
def test_how_pieces_are_permuted(headers: Path, kernel_config: HopperForwardKernelConfig) -> None:
    """PTX ISA 5.5.7."""
    found = wanted(16, np.int32)
    launch(device_kernel(headers, FILE, "pieces", SM90, kernel_config), found, block=16)
    rows = np.arange(16)
    wide = kernel_config.d_head % 64 == 0
    np.testing.assert_array_equal(found, rows % 8 if wide else rows // 2 % 4)
