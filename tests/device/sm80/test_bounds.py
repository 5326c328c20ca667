"""Bounds and masks of the Ampere family, against what every query sees key by key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.kernel_configs import FlashForwardKernelConfig
from tests.device.launching import device_kernel, given, launch, wanted
from tests.device.layouts import accumulator_places
from tests.device.problems import PROBLEMS, Problem, records

from .configs import config

FILE = "sm80/bounds.cu"
CONFIGS = [
    config(B_r=64, B_c=32),
    config(B_r=64, B_c=64),
    config(B_r=128, B_c=64),
    config(B_r=128, B_c=128, n_warps=8),
]
each_config = pytest.mark.parametrize("kernel_config", CONFIGS, ids=str)


def query_blocks(block: int, problems: list[Problem] = PROBLEMS) -> list[tuple[Problem, int]]:
    """Every block of queries of every problem: the problem and the block's first row."""
    return [(p, row) for p in problems for row in range(0, p.n_queries, block)]


def run_bounds(
    headers: Path, kernel_config: FlashForwardKernelConfig, items: list[Any], any_length: bool
) -> Any:
    out = wanted((len(items), 6), np.int32)
    launch(device_kernel(headers, FILE, "bounds", config=kernel_config),
           given(records([problem for problem, _ in items])),
           given([row for _, row in items], np.int32), out, any_length, grid=len(items),
           block=1)  # fmt: skip
    return out


@each_config
def test_bounds_of_any_length(headers: Path, kernel_config: FlashForwardKernelConfig) -> None:
    block_r, block_c = kernel_config.blocks()
    items = query_blocks(block_r)
    for (problem, row), found in zip(
        items, run_bounds(headers, kernel_config, items, True), strict=True
    ):
        q_row, n_rows, n_blocks, n_whole, last_row, n_last = map(int, found)
        assert (q_row, n_rows) == (row, min(block_r, problem.n_queries - row))
        sees = problem.sees(row, n_rows, 0, problem.n_keys)
        n_any, n_all = (int(f(sees, axis=0).sum()) for f in (np.any, np.all))
        assert n_blocks == -(-n_any // block_c)
        # The causal bound may leave out a block that the first row sees to its last key.
        may_miss = problem.causal and n_all % block_c == 0
        assert n_all // block_c - n_whole in ((0, 1) if may_miss else (0,))
        assert last_row == (n_blocks - 1) * block_c
        assert n_last == problem.n_keys - last_row


@each_config
def test_bounds_of_whole_blocks(headers: Path, kernel_config: FlashForwardKernelConfig) -> None:
    block_r, block_c = kernel_config.blocks()
    whole = [Problem(n * block_r, m * block_c, False) for n in (1, 3) for m in (1, 2, 5)]
    items = query_blocks(block_r, whole)
    found = run_bounds(headers, kernel_config, items, False)
    expected = [
        (row, block_r, p.n_keys // block_c, p.n_keys // block_c, p.n_keys - block_c, block_c)
        for p, row in items
    ]
    np.testing.assert_array_equal(found, expected)


def thread_places(kernel_config: FlashForwardKernelConfig) -> tuple[Any, Any]:
    """Row in the block, and column, of every (thread, register)."""
    rows, columns = accumulator_places(kernel_config.B_c)
    warp_rows = 16 * np.arange(kernel_config.B_r // 16).reshape(kernel_config.n_warps, 1, -1, 1)
    shape = (kernel_config.n_warps, 32, kernel_config.rows_per_warp() // 16, rows.shape[1])
    row = np.broadcast_to(warp_rows + rows[None, :, None], shape)
    column = np.broadcast_to(columns[None, :, None], shape)
    n_threads = kernel_config.n_threads()
    return row.reshape(n_threads, -1), column.reshape(n_threads, -1)


@each_config
def test_fragment_places(headers: Path, kernel_config: FlashForwardKernelConfig) -> None:
    out = wanted((kernel_config.n_threads(), 2), np.int32)
    kernel = device_kernel(headers, FILE, "places", config=kernel_config)
    launch(kernel, out, block=kernel_config.n_threads())
    row, column = thread_places(kernel_config)
    np.testing.assert_array_equal(out[:, 0], row[:, 0])
    np.testing.assert_array_equal(out[:, 1], column[:, 0])


@pytest.mark.parametrize("last", [False, True])
@each_config
def test_masks(
    headers: Path, kernel_config: FlashForwardKernelConfig, last: bool, seed: int
) -> None:
    """Every block of keys with every block of queries. The mask for blocks that cannot be the last
    is the causal one alone, so these lie inside of the sequence."""
    block_r, block_c = kernel_config.blocks()
    items = [
        (problem, row, key)
        for problem, row in query_blocks(block_r)
        for key in range(0, problem.n_keys, block_c)
        if last or (problem.causal and key + block_c <= problem.n_keys)
    ]
    row, column = thread_places(kernel_config)
    drawn = np.random.default_rng(seed).standard_normal((len(items), *row.shape))
    scores = given(drawn, np.float32).copy()
    q_rows, kv_rows = (given([item[i] for item in items], np.int32) for i in (1, 2))
    expected = scores.copy()
    for of_item, (problem, q_row, kv_row) in zip(expected, items, strict=True):
        of_item[~problem.sees(q_row, block_r, kv_row, block_c)[row, column]] = -np.inf
    launch(device_kernel(headers, FILE, "mask", config=kernel_config),
           given(records([item[0] for item in items])), q_rows, kv_rows, scores, last,
           grid=len(items), block=kernel_config.n_threads())  # fmt: skip
    np.testing.assert_array_equal(scores, expected)


@each_config
def test_rows_without_keys_are_cleared(
    headers: Path, kernel_config: FlashForwardKernelConfig
) -> None:
    """Even where their output is NaN; the other rows stay as they are."""
    block_r = kernel_config.B_r
    items = query_blocks(block_r)
    row, _ = thread_places(kernel_config)
    output = given(np.full((len(items), *row.shape), np.nan), np.float32).copy()
    m_tiles = kernel_config.rows_per_warp() // 16
    inverse = given(np.full((len(items), len(row), m_tiles, 2), np.inf), np.float32).copy()
    launch(device_kernel(headers, FILE, "clear", config=kernel_config),
           given(records([item[0] for item in items])), given([r for _, r in items], np.int32),
           output, inverse, grid=len(items), block=kernel_config.n_threads())  # fmt: skip
    for (problem, q_row), o, factor in zip(items, output, inverse, strict=True):
        unseeing = ~problem.sees(q_row, block_r, 0, max(problem.n_keys, 1)).any(axis=1)[row]
        np.testing.assert_array_equal(o, np.where(unseeing, 0, np.nan))
        of_rows = unseeing.reshape(len(row), m_tiles, -1, 2, 2)[:, :, 0, :, 0]
        np.testing.assert_array_equal(factor, np.where(of_rows, 0, np.inf))
