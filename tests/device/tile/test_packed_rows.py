"""tile/packed_rows.cuh: which sequence a place belongs to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.device.launching import device_kernel, given, launch, wanted


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 63, 64, 65, 100, 1024, 1025, 2100])
def test_the_last_sequence_that_has_begun(headers: Path, count: int, seed: int) -> None:
    """Empty sequences begin where the next does; before the first begins there is none."""
    steps = np.random.default_rng(seed).integers(0, 3, count)
    starts = 2 + np.cumsum(steps) - steps[0]
    places = np.arange(min(int(starts[-1]) + 3, 600))
    found = wanted(places.shape, np.int32)
    kernel = device_kernel(headers, "tile/packed_rows.cu", "search")
    launch(kernel, given(starts, np.int32), count, len(places), found, block=32)
    np.testing.assert_array_equal(found, np.searchsorted(starts, places, side="right") - 1)
