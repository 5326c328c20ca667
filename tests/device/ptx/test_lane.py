"""ptx/lane.cuh: each thread's number in its warp, and each warp's in its block."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.device.launching import device_kernel, launch, wanted


def test_each_warp_counts_from_zero(headers: Path) -> None:
    out = wanted(96, np.uint32)
    launch(device_kernel(headers, "ptx/lane.cu"), out, block=96)
    np.testing.assert_array_equal(out.reshape(3, 32), [np.arange(32)] * 3)


def test_warps_of_a_block_are_numbered(headers: Path) -> None:
    out = wanted(96, np.uint32)
    launch(device_kernel(headers, "ptx/lane.cu", "warps"), out, block=96)
    np.testing.assert_array_equal(out, np.arange(96) // 32)
