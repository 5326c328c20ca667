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
