"""ptx/memory.cuh: words arrive whole and where they are sent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.device.launching import device_kernel, given, launch, wanted

THREADS = 128
SHARED_BYTES = 16 * THREADS + 2048


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("partner", [0, 1, 33, 127])
@pytest.mark.parametrize(("entry", "words"), [("sixteen", 4), ("four", 1)])
def test_words_passed_through_shared_memory(
    headers: Path, entry: str, words: int, partner: int, far: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    source = given(rng.integers(0, 1 << 32, (THREADS, words)), np.uint32)
    out = wanted(source.shape, np.uint32)
    kernel = device_kernel(headers, "ptx/memory.cu", entry)
    launch(kernel, source, out, partner, far, block=THREADS, shared=SHARED_BYTES)
    np.testing.assert_array_equal(out, source[np.arange(THREADS) ^ partner])


def test_addresses_are_those_of_pointers(headers: Path) -> None:
    out = wanted(64, np.uint32)
    launch(device_kernel(headers, "ptx/memory.cu", "places"), out)
    np.testing.assert_array_equal(out, [*(1031 - np.arange(32)), *(2000 + np.arange(32))])


def test_the_memory_that_a_launch_asks_for_begins_there(headers: Path, seed: int) -> None:
    """NVRTC's way to the address is compared with nvcc's in tests/build/test_nvrtc.py."""
    source = given(np.random.default_rng(seed).integers(0, 1 << 32, THREADS), np.uint32)
    out = wanted(source.shape, np.uint32)
    kernel = device_kernel(headers, "ptx/memory.cu", "begin")
    launch(kernel, source, out, block=THREADS, shared=4 * THREADS)
    np.testing.assert_array_equal(out, source[::-1])
