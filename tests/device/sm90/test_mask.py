"""mask_scores of the Hopper family: each row sees its own number of keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.device.launching import SM90, device_kernel, given, launch
from tests.device.layouts import accumulators


@pytest.mark.parametrize("n_keys", [48, 128, 176])
def test_keys_from_a_row_s_number_on_are_hidden(headers: Path, n_keys: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kernel = device_kernel(headers, "sm90/mask.cu", architecture=SM90)
    for visible in (
        np.arange(16), np.arange(16)[::-1] * 11 - 20, rng.integers(-5, n_keys + 5, 16),
        np.full(16, n_keys), np.zeros(16), np.full(16, n_keys - 1),
    ):  # fmt: skip
        scores = rng.standard_normal((16, n_keys)).astype(np.float32)
        registers = given(accumulators(scores)).copy()
        launch(kernel, registers, given(visible, np.int32), n_keys)
        scores[np.arange(n_keys) >= visible[:, None]] = -np.inf
        np.testing.assert_array_equal(registers, accumulators(scores))
