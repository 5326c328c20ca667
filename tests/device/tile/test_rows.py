"""quad_max and quad_sum: over the four lanes that share a row, and no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.device.launching import device_kernel, given, launch, wanted


def test_reductions_over_four_lanes(headers: Path, seed: int) -> None:
    """All four get the result. The numbers are integers, so their sums are exact in any order."""
    values = np.random.default_rng(seed).integers(-999, 999, 128).astype(np.float32)
    values[:4] = -np.inf
    largest, total = wanted(128, np.float32), wanted(128, np.float32)
    launch(device_kernel(headers, "tile/rows.cu"), given(values), largest, total, block=128)
    quads = values.reshape(32, 4)
    np.testing.assert_array_equal(largest, np.repeat(quads.max(axis=1), 4))
    np.testing.assert_array_equal(total, np.repeat(quads.sum(axis=1), 4))
