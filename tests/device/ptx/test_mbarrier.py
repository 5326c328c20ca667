"""ptx/mbarrier.cuh: when phases end, and for whom."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flash_helpers.emulator import (
    DeadlockError,
    EmulatedKernel,
    KernelError,
    MbarrierError,
    RaceError,
    schedules,
)
from tests.device.launching import SM90, device_kernel, given, launch, wanted


def kernel(headers: Path, entry: str) -> EmulatedKernel:
    return device_kernel(headers, "ptx/mbarrier.cu", entry, SM90)


@pytest.mark.parametrize("n_phases", [1, 2, 5])
def test_phases_alternate(headers: Path, n_phases: int, seed: int) -> None:
    """Words are handed over and buffers handed back without a race, in any order of threads."""
    source = given(np.random.default_rng(seed).integers(0, 99, (n_phases, 32)), np.int32)
    for options in schedules(seed):
        out = wanted(source.shape, np.int32)
        launch(kernel(headers, "phases"), source, out, n_phases, 32, block=64, options=options)
        np.testing.assert_array_equal(out, source[:, ::-1])


@pytest.mark.parametrize(
    ("arrivals", "error", "report"),
    [(33, DeadlockError, "had 32 of 33 arrivals"), (31, RaceError, "read-after-write"),
     (0, MbarrierError, "0 arrivals")],
)  # fmt: skip
def test_a_phase_takes_as_many_arrivals_as_it_was_given(
    headers: Path, arrivals: int, error: type[KernelError], report: str
) -> None:
    source, out = given(np.zeros((1, 32)), np.int32), wanted((1, 32), np.int32)
    with pytest.raises(error, match=report):
        launch(kernel(headers, "phases"), source, out, 1, arrivals, block=64)


def test_announced_bytes_are_waited_for(headers: Path) -> None:
    out = wanted(32, np.int32)
    launch(kernel(headers, "announced"), out, 0)
    np.testing.assert_array_equal(out, 1)
    with pytest.raises(DeadlockError, match="4096 bytes announced"):
        launch(kernel(headers, "announced"), out, 4096)


def test_what_try_wait_answers(headers: Path) -> None:
    """The phase before the first counts as completed."""
    out = wanted(4, np.int32)
    launch(kernel(headers, "asked"), out, block=1)
    np.testing.assert_array_equal(out, [1, 0, 0, 1])


def test_what_test_wait_answers(headers: Path) -> None:
    out = wanted(3, np.int32)
    launch(kernel(headers, "tested"), out, block=1)
    np.testing.assert_array_equal(out, [1, 0, 1])
