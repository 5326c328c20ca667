"""ptx/cp_async.cuh: what is copied, and when it may be read."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from flash_helpers.emulator import RaceError
from tests.device.launching import device_kernel, device_ptx, given, launch, wanted

THREADS = 64
COPIES = (
    "cp_async_16", "cp_async_ca_16", "cp_async_16_zero_fill", "cp_async_8_zero_fill",
    "cp_async_16_zero_fill_once",
)  # fmt: skip
FILL = COPIES[2:]
NEIGHBOURS = np.arange(THREADS) ^ 1


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("which", range(5), ids=COPIES)
def test_sixteen_bytes(headers: Path, which: int, far: bool, seed: int) -> None:
    source = given(np.random.default_rng(seed).integers(0, 256, (THREADS, 16)), np.uint8)
    out = wanted(source.shape, np.uint8)
    kernel = device_kernel(headers, "ptx/cp_async.cu", "copies")
    launch(kernel, source, out, which, 16, far, np.int64(0), block=THREADS)
    np.testing.assert_array_equal(out, source[NEIGHBOURS])


@pytest.mark.parametrize("which", FILL)
@pytest.mark.parametrize("n_bytes", [0, 1, 4, 8, 12, 15, 16])
def test_zero_fill_reads_no_more_than_it_is_told(
    headers: Path, n_bytes: int, which: str, seed: int
) -> None:
    """The source array ends with the last byte that may be read. When none may, the address lies
    outside of it."""
    whole = np.random.default_rng(seed).integers(1, 256, (THREADS, 16)).astype(np.uint8)
    source = given(whole.ravel()[: 16 * (THREADS - 1) + max(n_bytes, 1)])
    out = wanted(whole.shape, np.uint8)
    kernel = device_kernel(headers, "ptx/cp_async.cu", "copies")
    away = np.int64(0 if n_bytes else 1 << 40)
    launch(kernel, source, out, COPIES.index(which), n_bytes, False, away, block=THREADS)
    whole[:, n_bytes:] = 0
    np.testing.assert_array_equal(out, whole[NEIGHBOURS])


@pytest.mark.parametrize("group", range(3))
@pytest.mark.parametrize("pending", range(3))
def test_a_group_is_over_when_few_enough_are_in_flight(
    headers: Path, pending: int, group: int, seed: int
) -> None:
    source = given(np.random.default_rng(seed).integers(0, 256, (3, 32, 16)), np.uint8)
    out = wanted((32, 16), np.uint8)
    kernel = device_kernel(headers, "ptx/cp_async.cu", "groups")
    if group < 3 - pending:
        launch(kernel, source, out, group, pending)
        np.testing.assert_array_equal(out, source[group, NEIGHBOURS[:32]])
    else:
        with pytest.raises(RaceError, match=r"in-flight cp\.async"):
            launch(kernel, source, out, group, pending)


def test_which_caches_a_copy_uses(headers: Path) -> None:
    """No result shows it: all copies but the .ca one bypass L1 and have L2 fetch 128 bytes."""
    ptx = device_ptx(headers, "ptx/cp_async.cu")
    copies = Counter(re.findall(r"cp\.async\.c[ag][\w.:]*", ptx))
    assert set(copies) == {
        "cp.async.cg.shared.global.L2::128B", "cp.async.ca.shared.global",
        "cp.async.cg.shared.global.L2::cache_hint.L2::128B",
    }  # fmt: skip
    assert copies["cp.async.ca.shared.global"] == 6  # one of 16 bytes, two of 8, for each offset
