"""ptx/named_barrier.cuh: who waits for whom."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flash_helpers.emulator import RaceError, schedules
from tests.device.launching import device_kernel, given, launch, wanted

T = np.arange(128)


@pytest.mark.parametrize("id", [1, 14])
@pytest.mark.parametrize("partner", [1, 33, 63])
def test_bar_sync_orders_its_own_threads(headers: Path, id: int, partner: int, seed: int) -> None:
    source = given(np.random.default_rng(seed).integers(0, 99, 128), np.int32)
    for options in schedules(seed):
        out = wanted(128, np.int32)
        kernel = device_kernel(headers, "ptx/named_barrier.cu", "exchange")
        launch(kernel, source, out, id, partner, block=128, options=options)
        np.testing.assert_array_equal(out, source[T ^ partner])


def test_bar_sync_orders_no_others(headers: Path) -> None:
    kernel = device_kernel(headers, "ptx/named_barrier.cu", "exchange")
    with pytest.raises(RaceError):
        launch(kernel, given(T, np.int32), wanted(128, np.int32), 1, 64, block=128)


@pytest.mark.parametrize("id", [1, 15])
def test_bar_arrive_hands_over_without_waiting(headers: Path, id: int, seed: int) -> None:
    source = given(T[:64], np.int32)
    kernel = device_kernel(headers, "ptx/named_barrier.cu", "hand_over")
    for options in schedules(seed):
        out = wanted(64, np.int32)
        launch(kernel, source, out, id, False, block=128, options=options)
        np.testing.assert_array_equal(out, source[::-1])
    with pytest.raises(RaceError):
        launch(kernel, source, wanted(64, np.int32), id, True, block=128)


@pytest.mark.parametrize("voters", [[], [0], [63], [64], [5, 100], list(range(128))])
def test_bar_red_or_tells_all_whether_any(headers: Path, voters: list[int]) -> None:
    mine, any_, out = np.zeros(128, np.int32), wanted(128, np.int32), wanted(128, np.int32)
    mine[voters] = 7
    kernel = device_kernel(headers, "ptx/named_barrier.cu", "vote")
    launch(kernel, given(mine), any_, out, 3, block=128)
    np.testing.assert_array_equal(any_, np.repeat(mine.reshape(2, 64).any(axis=1), 64))
    np.testing.assert_array_equal(out, T ^ 63)
