"""ptx/reduce.cuh: what many threads and blocks add arrives once. Small integers: any order of the
terms gives the same sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import PendingAsyncCopyError, RaceError
from tests.device.launching import SM90, device_kernel, given, launch
from tests.emulator.support import aligned

FILE = "ptx/reduce.cu"
BLOCKS, THREADS, PLACES = 3, 64, 8


def begun(shape: tuple[int, ...], rng: Any) -> Any:
    """Sums that are something already."""
    sums = aligned(shape, np.float32)
    sums[...] = rng.integers(-9, 9, shape)
    return sums


def test_vectors(headers: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    numbers = given(rng.integers(-9, 9, (BLOCKS * THREADS, 4)), np.float32)
    place = given(rng.integers(0, PLACES, BLOCKS * THREADS), np.int32)
    sums = begun((PLACES, 4), rng)
    expected = sums.copy()
    np.add.at(expected, place, numbers)
    kernel = device_kernel(headers, FILE, "vectors", SM90)
    launch(kernel, numbers, place, sums, grid=BLOCKS, block=THREADS)
    np.testing.assert_array_equal(sums, expected)


def test_numbers(headers: Path, seed: int) -> None:
    """Also for sm_80, which knows no vectors."""
    rng = np.random.default_rng(seed)
    numbers = given(rng.integers(-9, 9, BLOCKS * THREADS), np.float32)
    place = given(rng.integers(0, PLACES, BLOCKS * THREADS), np.int32)
    sums = begun((PLACES,), rng)
    expected = sums.copy()
    np.add.at(expected, place, numbers)
    kernel = device_kernel(headers, FILE, "numbers", SM90)
    launch(kernel, numbers, place, sums, grid=BLOCKS, block=THREADS)
    np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize("count", [4, 64, 500])
def test_bulk(headers: Path, count: int, seed: int, fenced: bool = True) -> None:
    rng = np.random.default_rng(seed)
    numbers = given(rng.integers(-9, 9, (BLOCKS, count)), np.float32)
    sums = begun((count + 4,), rng)
    expected = sums.copy()
    expected[:count] += numbers.sum(0)
    kernel = device_kernel(headers, FILE, "bulk", SM90)
    launch(kernel, numbers, sums, count, fenced, grid=BLOCKS, block=THREADS, shared=4 * count)
    np.testing.assert_array_equal(sums, expected)


def test_the_copy_engine_sees_what_was_written_behind_a_fence_alone(headers: Path) -> None:
    with pytest.raises(RaceError, match="fence"):
        test_bulk(headers, 64, 1, fenced=False)


def test_stored(headers: Path, seed: int, fenced: bool = True, waits: bool = True) -> None:
    numbers = given(np.random.default_rng(seed).integers(-9, 9, 64), np.float32)
    found = begun((68,), np.random.default_rng(seed))
    expected = found.copy()
    expected[:65] = [*numbers, numbers[-1]]
    kernel = device_kernel(headers, FILE, "stored", SM90)
    launch(kernel, numbers, found, 64, fenced, waits, grid=1, block=THREADS, shared=4 * 64)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("fenced", "waits"), [(False, True), (True, False)])
def test_a_store_is_fenced_and_waited_for(headers: Path, fenced: bool, waits: bool) -> None:
    with pytest.raises(RaceError):
        test_stored(headers, 1, fenced, waits)


@pytest.mark.parametrize("count", [4, 64, 500])
def test_brought(headers: Path, count: int, seed: int, waits: bool = True) -> None:
    numbers = given(np.random.default_rng(seed).integers(-9, 9, count), np.float32)
    found = aligned((count,), np.float32)
    kernel = device_kernel(headers, FILE, "brought", SM90)
    launch(kernel, numbers, found, count, waits, grid=1, block=THREADS, shared=4 * count + 8)
    np.testing.assert_array_equal(found, numbers)


def test_what_is_brought_is_waited_for(headers: Path) -> None:
    with pytest.raises(PendingAsyncCopyError):
        test_brought(headers, 64, 1, waits=False)
