"""sm90_bwd_fused/ordered_work.cuh: whose share of dQ comes when."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.kernels.backward_args import pack_backward_args
from tests.device.launching import device_kernel, launch, wanted

ROWS = 128  # keys of a thread block, as in the .cu
COLUMNS = {"few_steps": 128, "many_steps": 64}
KV_HEADS = 3
# (batch, queries, keys): one block of keys to nine, sections with one head and with all; more
# queries than keys, and fewer.
PROBLEMS = [
    (1, 100, 100), (2, 300, 200), (15, 512, 512), (2, 640, 641), (2, 700, 200), (1, 200, 700),
    (30, 129, 1100), (1, 1200, 1200),
]  # fmt: skip


def shares_of(
    headers: Path, kernel: str, problem: tuple[int, int, int], causal: bool, group: int,
    splits: int = 1, d_q: int = 16,
) -> Any:  # fmt: skip
    """What each place of the grid adds, in its order. `group`: query heads that share keys, among
    `splits` thread blocks; `d_q`: where it is to be written; 0: not."""
    batch, n_queries, n_keys = problem
    record = pack_backward_args(
        {"d_q": d_q}, {}, batch=batch, seqlen_q=n_queries, seqlen_k=n_keys,
        n_heads_q=KV_HEADS * group, n_heads_kv=KV_HEADS, softmax_scale=1.0, causal=causal,
        head_splits=splits,
    )  # fmt: skip
    steps = -(-n_queries // COLUMNS[kernel]) * group // splits
    shares = wanted((-(-n_keys // ROWS) * KV_HEADS * splits * batch, steps, 8), np.int32)
    device = device_kernel(headers, "sm90_bwd_fused/ordered_work.cu", kernel)
    launch(device, record, shares, steps, grid=len(shares), block=1)
    return shares


def seen_blocks(problem: tuple[int, int, int], columns: int, causal: bool, queries: int) -> int:
    """How many blocks of keys a block of queries sees something of."""
    _, n_queries, n_keys = problem
    last = min((queries + 1) * columns, n_queries) - 1
    keys = n_keys if not causal else min(max(last + 1 + n_keys - n_queries, 0), n_keys)
    return -(-keys // ROWS)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("kernel", COLUMNS)
@pytest.mark.parametrize(("group", "splits"), [(1, 1), (2, 1), (6, 3)])
def test_every_share_has_its_turn(
    headers: Path, kernel: str, problem: tuple[int, int, int], causal: bool, group: int, splits: int
) -> None:
    """For each block of queries those who see it are numbered through, each later in the grid than
    the one before, so that nobody waits for a thread block that may not have begun; and the last
    one alone knows that it is."""
    turns: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
    for place, steps in enumerate(shares_of(headers, kernel, problem, causal, group, splits)):
        for batch, head, block, query_head, queries, number, is_last, _ in steps[steps[:, 0] >= 0]:
            key = int(batch), int(head), int(query_head), int(queries)
            turns.setdefault(key, []).append((place, int(number), int(is_last)))
            assert block < -(-problem[2] // ROWS)
    columns = COLUMNS[kernel]
    blocks = range(-(-problem[1] // columns))
    for batch, head, query_head in itertools.product(
        range(problem[0]), range(KV_HEADS * splits), range(group // splits)
    ):
        for queries in blocks:
            n = seen_blocks(problem, columns, causal, queries)
            found = turns.pop((batch, head, query_head, queries), [])
            assert [share[1:] for share in found] == [(i, int(i == n - 1)) for i in range(n)]
    assert not turns


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("kernel", COLUMNS)
def test_heads_take_turns_with_each_block_of_queries(
    headers: Path, kernel: str, problem: tuple[int, int, int], causal: bool
) -> None:
    """Blocks pass by in one direction, and beyond five blocks of keys always from the last query
    on: all thread blocks that share queries meet them at about the same time."""
    group = 3
    for steps in shares_of(headers, kernel, problem, causal, group):
        there = steps[steps[:, 0] >= 0]
        heads, blocks = there[:, 3].reshape(-1, group), there[:, 4].reshape(-1, group)
        assert (heads == np.arange(group)).all() and (blocks == blocks[:, :1]).all()
        downwards = np.diff(blocks[:, 0]) == -1
        assert downwards.all() or (not downwards.any() and problem[2] <= 5 * ROWS)


@pytest.mark.parametrize("kernel", COLUMNS)
@pytest.mark.parametrize(("batch", "forwards"), [(4, True), (5, False)])
def test_nobody_waits_for_a_first_half_if_all_begin_at_once(
    headers: Path, kernel: str, batch: int, forwards: bool
) -> None:
    """Of 9 blocks of 3 heads at most 128 are together: four sequences'."""
    for steps in shares_of(headers, kernel, (batch, 1100, 1100), True, 1):
        blocks = steps[steps[:, 0] >= 0][:, 4]
        down = forwards or steps[0, 2] >= 9 // 2
        assert (np.diff(blocks) == (-1 if down else 1)).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", COLUMNS)
@pytest.mark.parametrize("problem", [(2, 300, 200), (15, 512, 512)], ids=str)
def test_parts_of_shared_heads_follow_each_other(
    headers: Path, kernel: str, problem: tuple[int, int, int], causal: bool
) -> None:
    """Each tile has one of its own; those of a block of keys are in the order of their heads."""
    splits = 3
    first = shares_of(headers, kernel, problem, causal, 6, splits)[:, 0]
    batch, head, block, part = first[:, 0], first[:, 1], first[:, 2], first[:, 7]
    assert sorted(part) == list(range(len(first)))
    own = (batch * KV_HEADS + head // splits) * -(-problem[2] // ROWS) + block
    assert (part == own * splits + head % splits).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", COLUMNS)
def test_nobody_is_the_last_of_a_gradient_that_is_not_wanted(
    headers: Path, kernel: str, causal: bool
) -> None:
    """There are no rows to round it to."""
    shares = shares_of(headers, kernel, (2, 640, 641), causal, 2, d_q=0)
    assert (shares[..., 0] >= 0).any() and (shares[..., 6] == 0).all()
