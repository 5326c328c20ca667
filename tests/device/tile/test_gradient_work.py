"""tile/gradient_work.cuh: the thread blocks of either kernel of a backward pass meet every score
that a query sees, and hide the others of the blocks that they meet."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from flash_helpers.kernels.backward_args import pack_backward_args
from tests.device.launching import device_kernel, launch, wanted

ROWS = 32  # of a thread block, as in the .cu
SECTION_BLOCKS = 128  # about so many thread blocks take turns
BATCH, HEADS, KV_HEADS = 2, 4, 2
LENGTHS = [(1, 1), (32, 32), (33, 16), (50, 100), (100, 50), (64, 97)]


@pytest.mark.parametrize("side", ["keys", "keys_apart", "queries"])
@pytest.mark.parametrize(("n_queries", "n_keys"), LENGTHS)
def test_every_score_that_is_seen_is_met_once(
    headers: Path, side: str, n_queries: int, n_keys: int
) -> None:
    kernel = device_kernel(headers, "tile/gradient_work.cu", side)
    for causal in (False, True):
        record = pack_backward_args(
            {}, {}, batch=BATCH, seqlen_q=n_queries, seqlen_k=n_keys, n_heads_q=HEADS,
            n_heads_kv=KV_HEADS, softmax_scale=1.0, causal=causal,
        )  # fmt: skip
        met = wanted((BATCH, HEADS, n_queries, n_keys), np.int32)
        met[:] = 0
        length, heads = (n_queries, HEADS) if side == "queries" else (n_keys, KV_HEADS)
        launch(kernel, record, met, grid=-(-length // ROWS) * heads * BATCH, block=ROWS)
        sees = np.tril(np.ones((n_queries, n_keys)), n_keys - n_queries if causal else n_keys)
        for batch, head in itertools.product(range(BATCH), range(HEADS)):
            np.testing.assert_array_equal(met[batch, head], sees)


@pytest.mark.parametrize("side", ["keys", "queries"])
def test_long_blocks_come_first_and_no_head_alone(headers: Path, side: str) -> None:
    """Every block of every head comes once. Without a mask head by head; causal in sections of
    heads, and of each section the blocks with most to do come first, so that no head's longest
    block begins when little else is left."""
    kernel = device_kernel(headers, "tile/gradient_work.cu", f"order_of_{side}")
    batch, heads, blocks = 13, 11, 5
    for causal in (False, True):
        record = pack_backward_args(
            {}, {}, batch=batch, seqlen_q=blocks * ROWS, seqlen_k=blocks * ROWS, n_heads_q=heads,
            n_heads_kv=heads, softmax_scale=1.0, causal=causal,
        )  # fmt: skip
        order = wanted((batch * heads * blocks, 5), np.int32)
        launch(kernel, record, order, grid=len(order), block=1)
        assert (order[:, 4] == blocks).all()
        places = [tuple(int(x) for x in row[:3]) for row in order]
        every = itertools.product(range(batch), range(heads), range(0, blocks * ROWS, ROWS))
        assert (sorted(places) if causal else places) == list(every)
        if causal:
            longest = [i for i, row in enumerate(order) if row[3] == order[:, 3].max()]
            assert len(longest) == batch * heads
            assert longest[-1] < len(order) - SECTION_BLOCKS // 4
            firsts = [i for i, steps in enumerate(np.diff(order[:, 3])) if steps > 0]
            assert 0 < len(firsts) < batch * heads // 20  # a section begins: the steps grow again
