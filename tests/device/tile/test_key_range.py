"""tile/key_range.cuh against the rule, key by key."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.device.launching import device_kernel, launch, wanted

N_KEYS, BLOCK = 48, 8
NONE = 2**31 - 1
LENGTHS = [(1, 40), (10, 2), (40, 40), (7, 33), (30, 0), (3, 1)]
WINDOWS = [0, 1, 7, 8, 39, NONE]


def sees(queries: int, keys: int, leftpad: int, left: int, right: int) -> np.ndarray:
    """(queries, N_KEYS), as the rule is written down."""
    at = np.arange(queries)[:, None] + keys - queries
    j = np.arange(N_KEYS)[None]
    return (j >= np.maximum(leftpad, at - left)) & (j < np.minimum(keys, at + right + 1))


@pytest.mark.parametrize("leftpad", [0, 5])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_ranges_and_blocks(headers: Path, lengths: tuple[int, int], leftpad: int) -> None:
    queries, keys = lengths
    kernel = device_kernel(headers, "tile/key_range.cu")
    for left, right in itertools.product(WINDOWS, WINDOWS):
        expected = sees(queries, keys, leftpad, left, right)
        rule = struct.pack("<5i", queries, keys, leftpad, left, right)
        for first, last in ((0, queries - 1), (queries // 2, queries // 2)):
            ranges = wanted((queries, 2), np.int32)
            seen = wanted((queries, N_KEYS), np.int32)
            blocks = wanted(4 + N_KEYS // BLOCK, np.int32)
            launch(kernel, rule, first, last, N_KEYS, ranges, seen, blocks, block=64)
            np.testing.assert_array_equal(seen, 3 * expected)
            assert (np.diff(ranges, axis=0) >= 0).all()  # neither end falls
            _check_blocks(blocks, expected[first : last + 1])


def _check_blocks(blocks: np.ndarray, expected: np.ndarray) -> None:
    by_any, by_all = expected.any(axis=0), expected.all(axis=0)
    begin, end, first_key, end_key = blocks[:4]
    keys = np.flatnonzero(by_any)
    if len(keys):
        assert (begin, end) == (keys[0] // BLOCK, keys[-1] // BLOCK + 1)
        assert (first_key, end_key) == (keys[0], keys[-1] + 1)
    else:
        assert begin >= end
    whole = by_all.reshape(-1, BLOCK).all(axis=1)
    np.testing.assert_array_equal(blocks[4:] != 0, whole)
