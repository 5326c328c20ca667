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
POLICIES = ["exact", "lazy", "optimistic"]
NONE, CORRECTED, REPEATED = range(3)  # what a block with the m of the blocks before took
N_BLOCKS = 5
each_policy = pytest.mark.parametrize("policy", POLICIES)
each_growth = pytest.mark.parametrize("growth", GROWTHS)


def run(headers: Path, scores: Scores, policy: str, optimistic: bool = False) -> Any:
    """The output (row, key); for every row, on which its lanes agree, the log-sum-exp, m and
    1 / sum; and what each block took."""
    n_blocks, _, n_keys = scores.blocks.shape
    registers = given(np.stack([accumulators(block) for block in scores.blocks]))
    out, statistics = wanted((32, n_keys // 2), np.float32), wanted((32, 2, 3), np.float32)
    events = wanted(n_blocks, np.int32)
    scale = np.float32(scores.scale) * np.float32(1 / np.log(2))
    launch(device_kernel(headers, FILE, f"{policy}_{n_keys}", SM90), registers, out, statistics,
           events, n_blocks, scale, optimistic)  # fmt: skip
    quads = statistics.reshape(8, 4, 2, 3)
    np.testing.assert_array_equal(quads, np.broadcast_to(quads[:, :1], quads.shape))
    by_row = quads[:, 0].transpose(1, 0, 2).reshape(16, 3)  # half, lane / 4
    return from_accumulators(out), by_row, events


def check(scores: Scores, o: Any, by_row: Any) -> None:
    np.testing.assert_allclose(o, scores.output, rtol=3e-5, atol=1e-7)
    np.testing.assert_allclose(by_row[:, 0], scores.log_sum_exp, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("n_keys", [48, 128])
@pytest.mark.parametrize("hidden", ["", "first", "last"])
@pytest.mark.parametrize("below", [0.0, 60.0])
@each_growth
@each_policy
def test_the_softmax_of_all_blocks(
    headers: Path, policy: str, growth: str, below: float, hidden: str, n_keys: int, seed: int
) -> None:
    """Also of scores that are all negative, which do not compare as integers do."""
    scores = Scores.draw(seed, (N_BLOCKS, 16, n_keys), growth, hidden)
    scores.blocks[:] -= below / scores.scale
    o, by_row, _ = run(headers, scores, policy)
    check(scores, o, by_row)


@pytest.mark.parametrize("below", [0.0, 60.0])
@each_growth
@each_policy
def test_which_m_is_kept(headers: Path, policy: str, growth: str, below: float, seed: int) -> None:
    """The row's maximum, or as the lazy policy has it, one that is too small by no more than an
    average block's sum allows: here 1.5 * 48."""
    scores = Scores.draw(seed, (N_BLOCKS, 16, 48), growth)
    scores.blocks[:] -= below / scores.scale
    _, by_row, _ = run(headers, scores, policy)
    lag = scores.maxima()[-1] - by_row[:, 1]
    assert lag.min() > -1e-4
    assert lag.max() < (np.log2(1.5 * 48) if policy == "lazy" else 1e-4)
    if policy == "lazy" and growth == "steady" and not below:
        assert lag.max() > 0.01  # it does not rise each time, but where it is negative


@each_growth
@pytest.mark.parametrize("n_keys", [48, 128])
def test_without_looking_at_the_maximum(headers: Path, n_keys: int, growth: str, seed: int) -> None:
    """m rises where sums outgrow what the blocks before added."""
    scores = Scores.draw(seed, (N_BLOCKS, 16, n_keys), growth)
    o, by_row, events = run(headers, scores, "optimistic", optimistic=True)
    check(scores, o, by_row)
    grows = growth in ("slow", "fast")
    assert (events[1:] == CORRECTED).any() == grows
    if growth == "fast":
        np.testing.assert_allclose(by_row[:, 1], scores.maxima()[-1], atol=1e-4)


def test_growth_beyond_a_correction(headers: Path, seed: int) -> None:
    """Exponentials that leave fp32: from the scores again, and m is the maximum."""
    scores = Scores.draw(seed, (3, 16, 48), "steady")
    scores.blocks[1, 3, 7] = 200 / scores.scale
    o, by_row, events = run(headers, scores, "optimistic", optimistic=True)
    check(scores, o, by_row)
    assert events[1] == REPEATED and events[2] == NONE
    assert by_row[3, 1] == pytest.approx(200 / np.log(2), rel=1e-6)


@each_policy
@pytest.mark.parametrize("optimistic", [False, True])
@pytest.mark.parametrize("sign", [-1, 1])
def test_large_scores(headers: Path, policy: str, sign: int, optimistic: bool, seed: int) -> None:
    """Of 60,000, next to which fp32 has steps of 1/256: the largest's weight is still 1."""
    rng = np.random.default_rng(seed)
    scores = Scores(sign * 60_000 + rng.integers(-4, 4, (4, 16, 48)).astype(np.float32), 1.0)
    o, by_row, events = run(headers, scores, policy, optimistic)
    np.testing.assert_allclose(o, scores.output, rtol=3e-6, atol=1e-7)
    np.testing.assert_allclose(by_row[:, 0], scores.log_sum_exp, rtol=2e-7)
    assert not optimistic or (events[1:] == REPEATED).all()


@each_policy
def test_a_row_that_sees_nothing(headers: Path, policy: str, seed: int) -> None:
    scores = Scores.draw(seed, (2, 16, 48), "steady")
    scores.blocks[:, 5] = -np.inf
    o, by_row, _ = run(headers, scores, policy)
    check(scores, o, by_row)
    np.testing.assert_array_equal(o[5], 0)
    assert by_row[5, 0] == -np.inf and by_row[5, 2] == 0
