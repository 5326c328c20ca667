"""tile/ordered_tiles.cuh: who has which keys, and whose share of dQ comes when."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.kernels.backward_args import pack_backward_args
from tests.device.launching import device_kernel, launch, wanted

ROWS = 128  # keys of a thread block, as in the .cu
COLUMNS = {"square": 128, "wide": 64, "narrow": 64}
KV_HEADS = 3
# (batch, queries, keys)
PROBLEMS = [(1, 100, 100), (2, 700, 200), (1, 200, 700), (15, 512, 512), (30, 129, 1100)]


def order_of(
    headers: Path, kernel: str, problem: tuple[int, int, int], causal: bool, group: int
) -> tuple[Any, Any]:
    """Of each place of the grid the tile, and its numbers. `group`: query heads that share keys."""
    batch, n_queries, n_keys = problem
    record = pack_backward_args(
        {}, {}, batch=batch, seqlen_q=n_queries, seqlen_k=n_keys, n_heads_q=KV_HEADS * group,
        n_heads_kv=KV_HEADS, softmax_scale=1.0, causal=causal,
    )  # fmt: skip
    n_blocks = -(-n_queries // COLUMNS[kernel])
    grid = -(-n_keys // ROWS) * KV_HEADS * batch
    tiles, numbers = wanted((grid, 8), np.int32), wanted((grid, n_blocks), np.int32)
    device = device_kernel(headers, "tile/ordered_tiles.cu", kernel)
    launch(device, record, tiles, numbers, n_blocks, grid=grid, block=1)
    return tiles, numbers


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("kernel", COLUMNS)
@pytest.mark.parametrize("group", [1, 2])
def test_every_tile_has_its_place(
    headers: Path, kernel: str, problem: tuple[int, int, int], causal: bool, group: int
) -> None:
    """Those who see a block of queries are numbered through, each later in the grid than the one
    before: nobody waits for a thread block that may not have begun."""
    tiles, numbers = order_of(headers, kernel, problem, causal, group)
    blocks = -(-problem[2] // ROWS)
    all_tiles = itertools.product(range(problem[0]), range(KV_HEADS), range(blocks))
    assert sorted(map(tuple, tiles[:, :3].tolist())) == list(all_tiles)
    assert (tiles[:, 3] == len(tiles)).all() and (tiles[:, 4] == blocks).all()
    for head in np.unique(tiles[:, :2], axis=0):
        of_head = (tiles[:, :2] == head).all(axis=1)
        for column in numbers[of_head].T:
            assert column[column >= 0].tolist() == list(range((column >= 0).sum()))


@pytest.mark.parametrize("kernel", COLUMNS)
@pytest.mark.parametrize(("group", "batch", "early"), [(1, 5, 4), (1, 4, 0), (2, 5, 0)])
def test_a_first_half_goes_up(
    headers: Path, kernel: str, group: int, batch: int, early: int
) -> None:
    """With a mask, from the queries beside them; unless heads share keys, or 128 blocks at most
    all begin at once. Four of nine blocks are the first half."""
    tiles, numbers = order_of(headers, kernel, (batch, 1100, 1100), True, group)
    assert (tiles[:, 5] == early).all()
    up = tiles[:, 2] < early
    assert (tiles[:, 6] == np.where(up, 1, -1)).all()
    beside = tiles[:, 2] * ROWS // COLUMNS[kernel]
    assert (tiles[:, 7] == np.where(up, beside, numbers.shape[1] - 1)).all()


@pytest.mark.parametrize(
    ("kernel", "group", "causal", "heads"),
    [("square", 1, False, 28), ("wide", 1, False, 14), ("narrow", 1, False, 14),
     ("wide", 3, True, 28), ("narrow", 3, True, 14)],
)  # fmt: skip
def test_so_many_heads_take_turns(
    headers: Path, kernel: str, group: int, causal: bool, heads: int
) -> None:
    """Of nine blocks each, which all come forwards: 128 blocks are 14 heads, 256 are 28."""
    tiles, _ = order_of(headers, kernel, (30, 129, 1100), causal, group)
    assert len(np.unique(tiles[:heads, :2], axis=0)) == heads
    assert (tiles[:heads, 2] == 0).all() and tiles[heads, 2] == 1
