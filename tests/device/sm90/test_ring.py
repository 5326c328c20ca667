"""RingPosition and wait_phase: the buffers of a ring, and the passes over it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flash_helpers.emulator import schedules
from tests.device.launching import SM90, device_kernel, given, launch, wanted

STEPS = 13
each_ring = pytest.mark.parametrize("buffers", [1, 2, 3, 4])


@each_ring
def test_positions(headers: Path, buffers: int) -> None:
    """The parity alternates from one pass over the ring to the next."""
    out = wanted((STEPS, 4), np.int32)
    kernel = device_kernel(headers, "sm90/ring.cu", "where", SM90)
    launch(kernel, out, STEPS, buffers, block=1)
    step = np.arange(STEPS)
    np.testing.assert_array_equal(out[:, 0], step % buffers)
    np.testing.assert_array_equal(out[:, 1], step // buffers % 2)
    np.testing.assert_array_equal(out[:, 2:], out[:, :2])


@each_ring
def test_what_goes_in_comes_out_in_any_order_of_threads(
    headers: Path, buffers: int, seed: int
) -> None:
    words = given(np.random.default_rng(seed).integers(0, 999, (STEPS, 32)), np.int32)
    kernel = device_kernel(headers, "sm90/ring.cu", "handed", SM90)
    for options in schedules(seed):
        out = wanted(words.shape, np.int32)
        launch(kernel, words, out, STEPS, buffers, block=64, options=options)
        np.testing.assert_array_equal(out, words[:, ::-1])
