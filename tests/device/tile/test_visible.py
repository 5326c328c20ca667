"""tile/visible.cuh against which keys every query sees, key by key."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from tests.device.launching import device_kernel, launch, wanted
from tests.device.problems import PROBLEMS, Problem


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_visible_keys(headers: Path, problem: Problem) -> None:
    """From the first key, and from any column on, where a negative number stands for none."""
    kernel = device_kernel(headers, "tile/visible.cu")
    for first, column in itertools.product((-64, 0, 7, 64), (0, 1, 64, 129)):
        out = wanted((64, 4), np.int32)
        launch(kernel, problem.args(), first, column, out, block=64)
        from_first, from_column = (
            problem.sees(first, 64, start, 512).sum(axis=1) for start in (0, column)
        )
        np.testing.assert_array_equal(out[:, 0], from_first)
        np.testing.assert_array_equal(np.clip(out[:, 2], 0, None), from_column)
        # By the causal mask alone, wherever the sequence ends.
        endless = first + np.arange(64) + 1 + problem.n_keys - problem.n_queries - column
        np.testing.assert_array_equal(out[:, 1], endless)
        np.testing.assert_array_equal(out[:, 3], endless)
