"""OnlineSoftmax against the softmax of all keys at once, in fp64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.launching import device_kernel, given, launch, wanted
from tests.device.layouts import accumulators, from_accumulators
from tests.device.softmax_cases import GROWTHS, Scores

# (16-row tiles, 8-key tiles)
SIZES = [(1, 4), (1, 16), (2, 8)]
N_BLOCKS = 5
LIMIT, LARGEST_LIMIT = 1.5, 256  # kLimit, kLargestLimit


def run(headers: Path, scores: Scores, peeled: bool, folded: bool, masked: bool) -> Any:
    """The output (row, key), and for every row, on which its lanes agree, the log-sum-exp and the
    maximum that is kept."""
    n_blocks, n_rows, n_keys = scores.blocks.shape
    m_tiles, s_tiles = n_rows // 16, n_keys // 8
    registers = np.stack(
        [[accumulators(block[16 * m : 16 * m + 16]) for m in range(m_tiles)]
         for block in scores.blocks]
    )  # fmt: skip
    out = wanted((32, m_tiles, 4 * s_tiles), np.float32)
    statistics = wanted((32, m_tiles, 2, 3), np.float32)
    kernel = device_kernel(headers, "sm80/online_softmax.cu", f"m{m_tiles}s{s_tiles}")
    launch(kernel, given(registers.transpose(0, 2, 1, 3)), out, statistics, n_blocks,
           np.float32(scores.scale), peeled, folded, masked)  # fmt: skip
    quads = statistics.reshape(8, 4, m_tiles, 2, 3)[..., :2]
    np.testing.assert_array_equal(quads, np.broadcast_to(quads[:, :1], quads.shape))
    by_row = quads[:, 0].transpose(1, 2, 0, 3).reshape(n_rows, 2)  # tile, half, lane / 4
    rows = np.concatenate([from_accumulators(out[:, m]) for m in range(m_tiles)])
    return rows, by_row[:, 0], by_row[:, 1]


@pytest.mark.parametrize("peeled", [False, True])
@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("growth", GROWTHS)
@pytest.mark.parametrize(("m_tiles", "s_tiles"), SIZES)
def test_the_softmax_of_all_blocks(
    headers: Path, m_tiles: int, s_tiles: int, growth: str, folded: bool, peeled: bool, seed: int
) -> None:
    scores = Scores.draw(seed, (N_BLOCKS, 16 * m_tiles, 8 * s_tiles), growth)
    o, lse, kept = run(headers, scores, peeled, folded, masked=False)
    np.testing.assert_allclose(o, scores.output, rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(lse, scores.log_sum_exp, rtol=2e-6, atol=2e-6)

    largest = scores.maxima()
    if not folded:
        np.testing.assert_allclose(kept / np.log(2), largest[-1], rtol=1e-6, atol=1e-6)
        return
    expected, sure = kept_maxima(scores)
    kept_log2 = kept * scores.scale / np.log(2)
    np.testing.assert_allclose(kept_log2[sure], expected[sure], rtol=1e-5, atol=1e-5)


def kept_maxima(scores: Scores) -> tuple[Any, Any]:
    """As exponents of 2: m rises where the new maximum would weigh more than LIMIT times what an
    average block has added; and which rows are not too close to call."""
    blocks = scores.scaled / np.log(2)
    kept = blocks[0].max(axis=1)
    sums = np.exp2(blocks[0] - kept[:, None]).sum(axis=1)
    sure = np.ones(kept.shape, bool)
    for n_before, block in enumerate(blocks[1:], start=1):
        lag = np.log2(np.clip(LIMIT * sums / n_before, 1, LARGEST_LIMIT))
        growth = block.max(axis=1) - kept
        sure &= np.abs(growth - lag) > 1e-4
        raised = np.where(growth > lag, kept + growth, kept)
        sums = sums * np.exp2(kept - raised) + np.exp2(block - raised[:, None]).sum(axis=1)
        kept = raised
    return kept, sure


@pytest.mark.parametrize("peeled", [False, True])
@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("hidden", ["first", "last"])
@pytest.mark.parametrize("growth", GROWTHS)
def test_hidden_keys(
    headers: Path, growth: str, hidden: str, folded: bool, peeled: bool, seed: int
) -> None:
    """Rows that see nothing of the first block, and rows that see only a part of the last."""
    scores = Scores.draw(seed, (N_BLOCKS, 32, 64), growth, hidden)
    o, lse, _ = run(headers, scores, peeled, folded, masked=True)
    np.testing.assert_allclose(o, scores.output, rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(lse, scores.log_sum_exp, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("scale", [0.01, 1.0, 3.0])
def test_every_scale(headers: Path, scale: float, folded: bool, seed: int) -> None:
    scores = Scores.draw(seed, (2, 16, 32), "slow", scale=scale)
    o, lse, _ = run(headers, scores, True, folded, masked=False)
    np.testing.assert_allclose(o, scores.output, rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(lse, scores.log_sum_exp, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("folded", [False, True])
def test_a_row_that_sees_nothing_has_no_weight(headers: Path, folded: bool, seed: int) -> None:
    scores = Scores.draw(seed, (2, 16, 32), "steady")
    scores.blocks[:, 3] = -np.inf
    o, lse, _ = run(headers, scores, False, folded, masked=True)
    assert lse[3] == -np.inf
    others = np.arange(16) != 3
    np.testing.assert_allclose(o[others], scores.output[others], rtol=2e-5, atol=1e-7)
