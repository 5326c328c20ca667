"""RowStatistics against the softmax of all keys at once, in fp64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.launching import SM90, device_kernel, given, launch, wanted
from tests.device.layouts import accumulators, from_accumulators
from tests.device.softmax_cases import GROWTHS, Scores

FILE = "sm90/softmax.cu"
# How far, as an exponent of 2, a row's maximum may exceed the one that is kept.
LAGS = {"exact": 0, "lazy": 8, "optimistic": 8}
N_BLOCKS = 5
each_policy = pytest.mark.parametrize("policy", LAGS)
each_growth = pytest.mark.parametrize("growth", GROWTHS)


def run(headers: Path, scores: Scores, policy: str, optimistic: bool = False) -> Any:
    """The output (row, key); for every row, on which its lanes agree, the log-sum-exp, the maximum
    that is kept and 1 / sum; and which blocks overflowed."""
    n_blocks, _, n_keys = scores.blocks.shape
    registers = given(np.stack([accumulators(block) for block in scores.blocks]))
    out, statistics = wanted((32, n_keys // 2), np.float32), wanted((32, 2, 3), np.float32)
    overflows = wanted(n_blocks, np.int32)
    scale_log2 = np.float32(scores.scale) * np.float32(1 / np.log(2))
    launch(device_kernel(headers, FILE, f"{policy}_{n_keys}", SM90), registers, out, statistics,
           overflows, n_blocks, scale_log2, optimistic)  # fmt: skip
    quads = statistics.reshape(8, 4, 2, 3)
    np.testing.assert_array_equal(quads, np.broadcast_to(quads[:, :1], quads.shape))
    by_row = quads[:, 0].transpose(1, 0, 2).reshape(16, 3)  # half, lane / 4
    return from_accumulators(out), by_row, overflows


def check(scores: Scores, o: Any, by_row: Any) -> None:
    np.testing.assert_allclose(o, scores.output, rtol=3e-5, atol=1e-7)
    np.testing.assert_allclose(by_row[:, 0], scores.log_sum_exp, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("n_keys", [48, 128])
@pytest.mark.parametrize("hidden", ["", "first", "last"])
@each_growth
@each_policy
def test_the_softmax_of_all_blocks(
    headers: Path, policy: str, growth: str, hidden: str, n_keys: int, seed: int
) -> None:
    scores = Scores.draw(seed, (N_BLOCKS, 16, n_keys), growth, hidden)
    o, by_row, _ = run(headers, scores, policy)
    check(scores, o, by_row)


@each_growth
@each_policy
def test_which_maximum_is_kept(headers: Path, policy: str, growth: str, seed: int) -> None:
    """It rises when the row's own maximum has grown by more than the policy tolerates; other rows
    of the warp stay as they are."""
    scores = Scores.draw(seed, (N_BLOCKS, 16, 48), growth)
    _, by_row, _ = run(headers, scores, policy)
    largest = scores.maxima()
    expected = largest[0].copy()
    for of_block in largest[1:]:
        expected = np.where(of_block - expected > LAGS[policy], of_block, expected)
    np.testing.assert_allclose(by_row[:, 1], expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("growth", ["steady", "slow", "fast", "falling"])
@pytest.mark.parametrize("n_keys", [48, 128])
def test_without_looking_at_the_maximum(headers: Path, n_keys: int, growth: str, seed: int) -> None:
    """A block is computed again if, and only if, an exponential is too large."""
    scores = Scores.draw(seed, (N_BLOCKS, 16, n_keys), growth)
    o, by_row, overflows = run(headers, scores, "optimistic", optimistic=True)
    check(scores, o, by_row)
    assert bool(overflows[1:].any()) == (growth == "fast")


@each_policy
def test_a_row_that_sees_nothing(headers: Path, policy: str, seed: int) -> None:
    scores = Scores.draw(seed, (2, 16, 48), "steady")
    scores.blocks[:, 5] = -np.inf
    o, by_row, _ = run(headers, scores, policy)
    check(scores, o, by_row)
    np.testing.assert_array_equal(o[5], 0)
    assert by_row[5, 0] == -np.inf and by_row[5, 2] == 0


def test_overflowed(headers: Path) -> None:
    """In either row. NaN does not count: no other maximum would help."""
    small, large = 32768.0, np.nextafter(np.float32(32768), np.float32(np.inf))
    sums = [(0, 0), (small, small), (large, 0), (0, large), (np.inf, 0), (np.nan, 0), (0, np.nan)]
    out = wanted(len(sums), np.int32)
    kernel = device_kernel(headers, FILE, "overflowed", SM90)
    launch(kernel, given(sums, np.float32), out, block=len(sums))
    np.testing.assert_array_equal(out, [0, 0, 1, 1, 1, 0, 0])
