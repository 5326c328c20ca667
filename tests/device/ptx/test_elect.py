"""ptx/elect.cuh: one thread of each warp."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.device.launching import SM90, device_kernel, launch, wanted


def test_one_of_each_warp(headers: Path) -> None:
    out = wanted(128, np.int32)
    launch(device_kernel(headers, "ptx/elect.cu", architecture=SM90), out, block=128)
    np.testing.assert_array_equal(out.reshape(4, 32).sum(axis=1), 1)
