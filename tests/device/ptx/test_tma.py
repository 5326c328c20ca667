"""ptx/tma.cuh and ptx/fence.cuh: boxes of five-dimensional tensors against numpy's slices."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import DeadlockError, RaceError, pack_tensor_map
from tests.device.launching import SM90, device_kernel, device_ptx, given, launch, wanted
from tests.device.layouts import in_shared_memory

FILE = "ptx/tma.cu"
SHAPE = (2, 3, 3, 40, 64)  # batch, head, chunk, row, column: outermost first
ALL, NONE, ONE_STORE = range(3)
THREADS = 128


def tensor(seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 1 << 16, SHAPE).astype(np.uint16)


def map_of(array: Any, box: tuple[int, ...], swizzle: int) -> bytes:
    """`box` outermost first."""
    return pack_tensor_map(array.ctypes.data, 2, array.shape[::-1], array.strides[-2::-1],
                           box[::-1], swizzle=swizzle)  # fmt: skip


def place(at: tuple[int, ...]) -> bytes:
    """Coordinates, innermost first; `at` is outermost first."""
    return struct.pack("<5i", *at[::-1])


def box_of(array: Any, at: tuple[int, ...], box: tuple[int, ...]) -> Any:
    """The box at `at`, with zeros outside of the array."""
    out = np.zeros(box, array.dtype)
    inside = [
        (max(0, start), min(start + size, whole))
        for start, size, whole in zip(at, box, array.shape, strict=True)
    ]
    if all(first < last for first, last in inside):
        to = tuple(slice(a - start, b - start) for (a, b), start in zip(inside, at, strict=True))
        out[to] = array[tuple(slice(a, b) for a, b in inside)]
    return out


BOXES = [(1, 1, 2, 16, 64), (1, 1, 1, 24, 32), (2, 1, 1, 8, 16), (1, 2, 3, 8, 64)]
PLACES = [(0, 0, 0, 0, 0), (1, 2, 1, 16, 0), (1, 0, 2, 32, 0), (0, 1, 0, -8, 0), (0, 2, 0, 40, 0)]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("box", BOXES)
def test_a_box_is_loaded(
    headers: Path, box: tuple[int, ...], at: tuple[int, ...], last: bool, seed: int
) -> None:
    array, swizzle = given(tensor(seed)), 2 * box[-1]
    expected = in_shared_memory(box_of(array, at, box), swizzle)
    out = wanted(expected.size, np.uint8)
    launch(device_kernel(headers, FILE, "load", SM90), map_of(array, box, swizzle), out, place(at),
           out.size, out.size, last, block=THREADS, shared=out.size, memory=[array])  # fmt: skip
    np.testing.assert_array_equal(out, expected)


def test_the_barrier_counts_every_byte(headers: Path, seed: int) -> None:
    array, box = given(tensor(seed)), (1, 1, 2, 16, 64)
    out = wanted(4096, np.uint8)
    with pytest.raises(DeadlockError, match="16 bytes announced that no copy in flight brings"):
        launch(device_kernel(headers, FILE, "load", SM90), map_of(array, box, 128), out,
               place((0,) * 5), 4096, 4096 + 16, False, block=THREADS, shared=4096,
               memory=[array])  # fmt: skip


def store(
    headers: Path, array: Any, box: tuple[int, ...], source: Any, places: list[tuple[int, ...]],
    fenced: bool = True, wait: int = ALL,
) -> None:  # fmt: skip
    launch(device_kernel(headers, FILE, "store", SM90), map_of(array, box, 2 * box[-1]), source,
           *(place(at) for at in places), source.size, fenced, wait, block=THREADS,
           shared=source.size, memory=[array])  # fmt: skip


@pytest.mark.parametrize("at", [at for at in PLACES if min(at) >= 0])
@pytest.mark.parametrize("box", BOXES)
def test_a_box_is_stored_and_clipped(
    headers: Path, box: tuple[int, ...], at: tuple[int, ...], seed: int
) -> None:
    array = wanted(SHAPE, np.uint16)
    expected = array.copy()
    values = np.random.default_rng(seed).integers(0, 1 << 16, box).astype(np.uint16)
    behind_the_end = tuple(SHAPE)  # two stores to one place would be a race
    store(headers, array, box, given(in_shared_memory(values, 2 * box[-1])), [at, behind_the_end])
    inside = tuple(slice(start, start + size) for start, size in zip(at, box, strict=True))
    expected[inside] = values[tuple(slice(0, n) for n in expected[inside].shape)]
    np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    ("fenced", "wait", "report"),
    [(False, ALL, "not fenced for an asynchronous unit"),
     (True, NONE, "write to the source of a bulk store in flight"),
     (True, ONE_STORE, "write to the source of a bulk store in flight")],
)  # fmt: skip
def test_what_a_store_needs(headers: Path, fenced: bool, wait: int, report: str) -> None:
    """A fence by the writers, and a wait for every group before the memory is used again."""
    array, box = wanted(SHAPE, np.uint16), BOXES[0]
    source = given(np.zeros(4096), np.uint8)
    with pytest.raises(RaceError, match=report):
        store(headers, array, box, source, [(0,) * 5, (1, 0, 0, 0, 0)], fenced, wait)


def test_what_only_the_instruction_shows(headers: Path) -> None:
    """The tensor map is prefetched, and the cache policies are the two constants."""
    ptx = device_ptx(headers, FILE, SM90)
    assert "prefetch.tensormap" in ptx
    for policy in (0x12F0000000000000, 0x14F0000000000000):
        assert str(policy) in ptx


def test_what_is_brought_to_l2_is_what_it_was(headers: Path, seed: int) -> None:
    source = given(np.random.default_rng(seed).integers(0, 1 << 32, 32), np.uint32)
    out = wanted(source.shape, np.uint32)
    launch(device_kernel(headers, FILE, "ahead", architecture=SM90), source, out)
    np.testing.assert_array_equal(out, source)
