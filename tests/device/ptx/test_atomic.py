"""ptx/atomic.cuh: what is known to the thread that counts last, or next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flash_helpers.emulator import RaceError, schedules
from tests.device.launching import device_kernel, launch, wanted


def test_the_last_knows_what_all_wrote_and_the_count_is_zero_again(
    headers: Path, seed: int
) -> None:
    kernel = device_kernel(headers, "ptx/atomic.cu", "last_adds")
    for n in (1, 2, 9):
        for options in schedules(seed):
            counter, total = np.zeros(1, np.uint32), wanted(1, np.int32)
            launch(kernel, counter, wanted(n, np.int32), total, True, grid=n, block=1,
                   options=options)  # fmt: skip
            assert (counter[0], total[0]) == (0, n * (n + 1) // 2)


def test_without_a_fence_it_does_not(headers: Path) -> None:
    kernel = device_kernel(headers, "ptx/atomic.cu", "last_adds")
    with pytest.raises(RaceError):
        launch(kernel, np.zeros(1, np.uint32), wanted(9, np.int32), wanted(1, np.int32), False,
               grid=9, block=1)  # fmt: skip


def test_one_after_the_other(headers: Path, seed: int, released: bool = True) -> None:
    kernel = device_kernel(headers, "ptx/atomic.cu", "in_turn")
    for options in schedules(seed):
        counter, length = np.zeros(1, np.uint32), np.zeros(1, np.int32)
        numbers = wanted(9, np.int32)
        launch(kernel, counter, numbers, length, released, grid=9, block=1, options=options)
        assert (counter[0], length[0], [*numbers]) == (9, 9, [*range(1, 10)])


def test_a_count_alone_makes_nothing_known(headers: Path) -> None:
    with pytest.raises(RaceError):
        test_one_after_the_other(headers, 1, released=False)
