"""TileSchedule: every tile once, in the order that its header promises, and what its rows see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.kernel_configs import HopperForwardKernelConfig
from tests.device.launching import SM90, device_kernel, launch, wanted
from tests.device.problems import PROBLEMS, Problem
from tests.emulator.support import aligned

from .arguments import Launch
from .configs import config

FILE = "sm90/tile_schedule.cu"
GROUP_ROWS = 64
CONFIGS = [
    config(block_n=128, n_mma_groups=2),
    config(block_n=176, n_mma_groups=3, d_head=64),
    config(block_n=80, n_mma_groups=1, d_head=256),
]
each_config = pytest.mark.parametrize("kernel_config", CONFIGS, ids=str)
# In the last two, only a few KV heads fit a section of L2.
LAUNCHES = [
    Launch(300, 300, heads=3, kv_heads=3, batch=2),
    Launch(64, 64),
    Launch(1, 500, heads=5),
    Launch(420, 40_000, heads=6, kv_heads=3, batch=2),
    Launch(200, 20_000, heads=5, kv_heads=5, batch=1),
]


def origin(kernel_config: HopperForwardKernelConfig, n_queries: int) -> int:
    """Where tiles begin: earlier by all warpgroups but one, if only one would have rows in the last
    tile."""
    others = kernel_config.n_mma_groups - 1
    in_last_tile = (-(-n_queries // GROUP_ROWS) - 1) % kernel_config.n_mma_groups + 1
    return -others * GROUP_ROWS if in_last_tile == 1 else 0


def tiles(kernel_config: HopperForwardKernelConfig, problem: Launch) -> list[tuple[int, int, int]]:
    """The list of tiles: (first row, head, batch)."""
    block_m, _ = kernel_config.blocks()
    n_blocks = -(-problem.n_queries // block_m)
    heads = [(head, b) for b in range(problem.batch) for head in range(problem.heads)]
    if not problem.causal:
        return [(block_m * i, *head) for head in heads for i in range(n_blocks)]
    size, start = problem.heads_per_section(kernel_config), origin(kernel_config, problem.n_queries)
    sections = [heads[i : i + size] for i in range(0, len(heads), size)]
    return [
        (start + block_m * i, *head)
        for section in sections
        for i in reversed(range(n_blocks))
        for head in section
    ]


def walk(
    headers: Path, kernel_config: HopperForwardKernelConfig, problem: Launch, grid: int
) -> Any:
    n_tiles = len(tiles(kernel_config, problem))
    out, asked = wanted((n_tiles, 6), np.int32), aligned(1, np.int32)
    counter = [] if problem.counter is None else [problem.counter]
    launch(device_kernel(headers, FILE, "walk", SM90, kernel_config), problem.args(kernel_config),
           out, asked, grid=grid, block=1, memory=counter)  # fmt: skip
    assert asked[0] == n_tiles
    return out


@pytest.mark.parametrize("grid", [1, 2, 5])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("problem", LAUNCHES, ids=lambda p: f"{p.n_queries}x{p.n_keys}x{p.heads}")
@each_config
def test_every_tile_once(
    headers: Path,
    kernel_config: HopperForwardKernelConfig,
    problem: Launch,
    causal: bool,
    grid: int,
) -> None:
    problem = replace(problem, causal=causal)
    expected = tiles(kernel_config, problem)
    grid = min(grid, len(expected))

    # Fixed shares: every other round goes through the blocks backwards.
    found = walk(headers, kernel_config, problem, grid)
    np.testing.assert_array_equal(found[:, 2:5], expected)
    rounds, inside = np.arange(len(expected)) // grid, np.arange(len(expected)) % grid
    np.testing.assert_array_equal(found[:, 0], np.where(rounds % 2, grid - 1 - inside, inside))
    np.testing.assert_array_equal(found[:, 1], rounds)

    # A counter: each tile is taken once, and the counter is 0 again for the next launch.
    counter = aligned(1, np.int32)
    for _ in range(2):
        found = walk(headers, kernel_config, replace(problem, counter=counter), grid)
        np.testing.assert_array_equal(found[:, 2:5], expected)
        assert counter[0] == 0

    seen = Problem(problem.n_queries, problem.n_keys, causal)
    block_m, block_n = kernel_config.blocks()
    for first_row, _, _, n_blocks in found[:, 2:]:
        there = range(max(0, first_row), min(first_row + block_m, problem.n_queries))
        assert there, "a tile without a row"
        sees = seen.sees(there.start, len(there), 0, problem.n_keys).any(axis=0).sum()
        assert n_blocks == -(-int(sees) // block_n)


@each_config
def test_all_rows_are_in_one_tile(headers: Path, kernel_config: HopperForwardKernelConfig) -> None:
    """For every number of queries."""
    n_queries = np.arange(1, 1025)
    out = wanted((1024, 2), np.int32)
    launch(device_kernel(headers, FILE, "places", SM90, kernel_config), out,
           Launch(64, 64).args(kernel_config), block=1024)  # fmt: skip
    expected = [origin(kernel_config, int(n)) for n in n_queries]
    np.testing.assert_array_equal(out[:, 0], expected)
    np.testing.assert_array_equal(out[:, 1], np.arange(1024))  # of a grid of one block
    block_m, _ = kernel_config.blocks()
    assert np.all(out[:, 0] + -(-n_queries // block_m) * block_m >= n_queries)


@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p.n_keys], ids=str)
@each_config
def test_what_rows_see(
    headers: Path, kernel_config: HopperForwardKernelConfig, problem: Problem
) -> None:
    """From two warpgroups before the first row to one after the last."""
    first, n_rows = -2 * GROUP_ROWS, problem.n_queries + 3 * GROUP_ROWS
    out, block_n = wanted((n_rows, 3), np.int32), kernel_config.block_n
    record = Launch(problem.n_queries, problem.n_keys, problem.causal).args(kernel_config)
    launch(device_kernel(headers, FILE, "rows", SM90, kernel_config), record, first, n_rows, out,
           grid=-(-n_rows // 128), block=128)  # fmt: skip
    sees = problem.sees(first, n_rows + GROUP_ROWS, 0, problem.n_keys).sum(axis=1)
    for i, (n_visible, n_whole, n_behind) in enumerate(out):
        row, group = first + i, sees[i : i + GROUP_ROWS]
        there = 0 <= row < problem.n_queries
        assert n_visible == (-(-int(group.max()) // block_n) if there else 0)
        assert n_whole == int(group.min()) // block_n
        # Blocks behind which every row sees half a block of keys.
        assert n_behind == sum(1 for b in range(1, 12) if group.min() >= b * block_n + block_n // 2)
