"""Epilogue of the Ampere family: rows normalised, rounded and stored, and no others touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.kernel_configs import FlashForwardKernelConfig
from tests.device.launching import device_kernel, given, launch, wanted
from tests.device.layouts import accumulators
from tests.emulator.attention import to_bits

from .configs import BF16, FP16, config

FILE = "sm80/epilogue.cu"
PAD = 8  # elements between rows
CONFIGS = [
    config(FP16, 64),
    config(BF16, 128, swizzled=False),
    config(BF16, 64, B_r=128),  # two tiles of 16 rows to a warp
    config(FP16, 128, B_r=128),
]
each_config = pytest.mark.parametrize("kernel_config", CONFIGS, ids=str)
each_length = pytest.mark.parametrize("n_rows", [1, 7, 15, 16, 17, 31, 32, 64])


def existing(kernel_config: FlashForwardKernelConfig, n_rows: int) -> int:
    return min(n_rows, kernel_config.rows_per_warp())


def output_rows(kernel_config: FlashForwardKernelConfig, n_rows: int) -> Any:
    """Memory for so many rows, ending with the last one."""
    pitch = kernel_config.d_head + PAD
    return wanted(existing(kernel_config, n_rows) * pitch - PAD, np.uint16)


def expected_memory(memory: Any, kernel_config: FlashForwardKernelConfig, rows: Any) -> Any:
    """The memory afterwards: the rows are there, and nothing between them has changed."""
    expected = wanted(memory.shape, np.uint16)
    for i, row in enumerate(rows):
        start = i * (kernel_config.d_head + PAD)
        expected[start : start + kernel_config.d_head] = row
    return expected


def by_tile(values: Any) -> Any:
    """The registers (lane, tile, register) of rows of sums."""
    tiles = [accumulators(values[i : i + 16]) for i in range(0, len(values), 16)]
    return given(np.stack(tiles, axis=1), np.float32)


def by_row(values: Any) -> Any:
    """The registers (lane, tile, half) of one number for each row."""
    return given(np.repeat(values.reshape(-1, 2, 8).transpose(2, 0, 1), 4, axis=0), np.float32)


@each_length
@each_config
def test_rows_are_scaled_rounded_and_stored(
    headers: Path, kernel_config: FlashForwardKernelConfig, n_rows: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    n_all, there = kernel_config.rows_per_warp(), existing(kernel_config, n_rows)
    o = rng.standard_normal((n_all, kernel_config.d_head)).astype(np.float32)
    inverse = rng.uniform(0.1, 2, n_all).astype(np.float32)
    expected = to_bits(o * inverse[:, None], kernel_config.dtype)[:there]
    row_bytes = 2 * (kernel_config.d_head + PAD)
    kernel = device_kernel(headers, FILE, config=kernel_config)
    for bounded in (True, False) if there == n_all else (True,):
        memory = output_rows(kernel_config, n_rows)
        warp_rows = 2 * n_all * kernel_config.d_head  # as warp 1 would
        launch(kernel, by_tile(o), by_row(inverse), memory, np.int64(row_bytes), n_rows, warp_rows,
               bounded, shared=2 * warp_rows)  # fmt: skip
        np.testing.assert_array_equal(memory, expected_memory(memory, kernel_config, expected))


@each_length
@each_config
def test_log_sum_exp_is_stored_row_by_row(
    headers: Path, kernel_config: FlashForwardKernelConfig, n_rows: int, seed: int
) -> None:
    n_all, there = kernel_config.rows_per_warp(), existing(kernel_config, n_rows)
    values = np.random.default_rng(seed).standard_normal(n_all).astype(np.float32)
    kernel = device_kernel(headers, FILE, "lse", config=kernel_config)
    for bounded in (True, False) if there == n_all else (True,):
        rows = wanted(there, np.float32)
        launch(kernel, by_row(values), rows, n_rows, bounded)
        np.testing.assert_array_equal(rows, values[:there])


@pytest.mark.parametrize("with_lse", [False, True])
@each_length
@each_config
def test_a_warp_that_sees_no_key(
    headers: Path, kernel_config: FlashForwardKernelConfig, n_rows: int, with_lse: bool
) -> None:
    there = existing(kernel_config, n_rows)
    memory, lse = output_rows(kernel_config, n_rows), wanted(there, np.float32)
    kernel = device_kernel(headers, FILE, "without_keys", config=kernel_config)
    row_bytes = 2 * (kernel_config.d_head + PAD)
    launch(kernel, memory, np.int64(row_bytes), lse if with_lse else np.uint64(0), n_rows)
    zeros = np.zeros((there, kernel_config.d_head), np.uint16)
    np.testing.assert_array_equal(memory, expected_memory(memory, kernel_config, zeros))
    if with_lse:
        np.testing.assert_array_equal(lse, -np.inf)
