"""tile/sequence_work.cuh: the thread blocks of a backward pass meet every score of every sequence
that a query sees, and hide the others of the blocks that they meet."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.kernels.backward_args import pack_backward_args
from flash_helpers.kernels.serve_args import NO_WINDOW
from tests.device.launching import device_kernel, given, launch, wanted

ROWS = 32  # of a thread block, as in the .cu
HEADS, KV_HEADS = 4, 2
NULL = bytes(8)
LENGTHS = [((3, 0, 33), (40, 5, 0)), ((64, 1), (97, 70)), ((0, 17, 100), (1, 50, 31))]
WINDOWS = [(NO_WINDOW, NO_WINDOW), (NO_WINDOW, 0), (7, 0), (20, 9), (0, NO_WINDOW)]


def starts_of(lengths: tuple[int, ...]) -> Any:
    """With 2 rows before."""
    return given(2 + np.cumsum((0, *lengths)), np.int32)


def sees(n_queries: int, n_keys: int, left: int, right: int) -> Any:
    """Which keys each query sees."""
    distance = np.arange(n_keys)[None] - np.arange(n_queries)[:, None] - (n_keys - n_queries)
    return (-left <= distance) & (distance <= right)


def blocks(n_rows: int, n_sequences: int) -> int:
    return n_rows // ROWS + n_sequences


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("side", ["keys", "keys_apart", "queries"])
@pytest.mark.parametrize(("queries", "keys"), LENGTHS)
def test_every_score_that_is_seen_is_met_once(
    headers: Path, side: str, queries: tuple[int, ...], keys: tuple[int, ...],
    window: tuple[int, int],
) -> None:  # fmt: skip
    """The last sequence's rows are not all used."""
    q_starts, k_starts = starts_of(queries), starts_of(keys)
    used = [given([*x[:-1], x[-1] // 2], np.int32) for x in (queries, keys)]
    n_queries, n_keys = int(q_starts[-1]) + 1, int(k_starts[-1]) + 1
    n_sequences = len(queries)
    arrays = {"cu_seqlens_q": q_starts, "cu_seqlens_k": k_starts, "seqused_q": used[0],
              "seqused_k": used[1]}  # fmt: skip
    record = pack_backward_args(
        {}, {}, batch=n_sequences, seqlen_q=n_queries, seqlen_k=n_keys, n_heads_q=HEADS,
        n_heads_kv=KV_HEADS, softmax_scale=1.0,
        served={name: x.ctypes.data for name, x in arrays.items()}
        | {"window_left": window[0], "window_right": window[1]},
    )  # fmt: skip
    met = wanted((HEADS, n_queries, n_keys), np.int32)
    met[:] = 0
    n_rows, heads = (n_queries, HEADS) if side == "queries" else (n_keys, KV_HEADS)
    kernel = device_kernel(headers, "tile/sequence_work.cu", side)
    launch(kernel, record, met, NULL, grid=blocks(n_rows, n_sequences) * heads, block=ROWS,
           memory=[met, *arrays.values()])  # fmt: skip
    expected = np.zeros((n_queries, n_keys), np.int32)
    for i, ((a, _), (c, _)) in enumerate(zip(pairwise(q_starts), pairwise(k_starts), strict=True)):
        rows, columns = int(used[0][i]), int(used[1][i])
        expected[a : a + rows, c : c + columns] = sees(rows, columns, *window)
    np.testing.assert_array_equal(met, np.broadcast_to(expected, met.shape))


@pytest.mark.parametrize("packed", [False, True])
def test_where_a_sequence_begins(headers: Path, packed: bool) -> None:
    batch, n_rows, row, head, between = 3, 40, 64, 16, 4096
    starts = given([0, 7, 7, 40], np.int32)
    record = pack_backward_args(
        {"q": 1 << 20, "k": 1 << 21, "d_v": 1 << 22, "row_stats": 1 << 23},
        dict.fromkeys(("q", "k", "d_v"), (0 if packed else between, row, head)),
        batch=batch, seqlen_q=n_rows, seqlen_k=n_rows, n_heads_q=HEADS, n_heads_kv=KV_HEADS,
        softmax_scale=1.0,
        served={"cu_seqlens_q": starts.ctypes.data, "cu_seqlens_k": starts.ctypes.data}
        if packed else {},
    )  # fmt: skip
    found, counted = wanted((batch, 4), np.int64), wanted((2,), np.int32)
    kernel = device_kernel(headers, "tile/sequence_work.cu", "keys")
    n_blocks = blocks(n_rows, batch) if packed else -(-n_rows // ROWS) * batch
    launch(kernel, record, NULL, found, grid=n_blocks, block=ROWS, memory=[found, starts])
    first = starts[:batch] * row if packed else np.arange(batch) * between
    stats = starts[:batch] if packed else np.arange(batch) * HEADS * 128
    np.testing.assert_array_equal(found, np.stack([first, first, first, stats], axis=1))
    launch(device_kernel(headers, "tile/sequence_work.cu", "count"), record, counted, grid=1,
           block=1, memory=[counted, starts])  # fmt: skip
    assert list(counted) == [-(-n_rows // ROWS), n_blocks]
