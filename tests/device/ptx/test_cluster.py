"""ptx/cluster.cuh: two blocks that send each other tiles, and what goes wrong without each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import (
    DeadlockError,
    EmulatedKernel,
    InvalidLaunchError,
    InvalidOperandError,
    KernelError,
    LaunchOptions,
    LaunchReport,
    MbarrierError,
    MisalignedAccessError,
    OutOfBoundsError,
    PendingAsyncCopyError,
    RaceError,
    compile_kernel,
    schedules,
)
from tests.device.launching import (
    SM90,
    device_kernel,
    device_ptx,
    given,
    launch,
    wanted,
    with_fault,
)

FILE = "ptx/cluster.cu"
TILE, PIECE = 64, 2048  # rows and columns; bytes that a warp sends
SHARED = 2 * 2 * TILE * TILE + 2 * 8
EARLY = pytest.mark.parametrize("early", [False, True], ids=["late", "early"])


def exchange(
    kernel: EmulatedKernel, source: Any, options: LaunchOptions | None = None, n_bytes: int = PIECE
) -> tuple[Any, LaunchReport]:
    blocks, phases = source.shape[:2]
    out = wanted(source.shape, np.float32)
    report = launch(kernel, source, out, phases, n_bytes, grid=blocks, block=256, shared=SHARED,
                    options=options)  # fmt: skip
    return out, report


def tiles(seed: int, blocks: int, phases: int) -> Any:
    shape = (blocks, phases, TILE, TILE)
    return given(np.random.default_rng(seed).integers(-4, 5, shape), np.float16)


def test_ranks_and_places(headers: Path) -> None:
    out = wanted((6, 3), np.int32)
    launch(device_kernel(headers, FILE, "ranks", SM90), out, grid=6)
    np.testing.assert_array_equal(out, [[0, 4, 1], [1, 4, 1]] * 3)


@pytest.mark.parametrize("phases", [1, 2, 5])
@EARLY
def test_tiles_are_exchanged(headers: Path, early: bool, phases: int, seed: int) -> None:
    """Without a race, whichever block is first."""
    source = tiles(seed, 4, phases)
    others = source.astype(np.float32)[[1, 0, 3, 2]].transpose(0, 1, 3, 2)
    for options in schedules(seed, options=LaunchOptions(early_loads=early)):
        out, report = exchange(device_kernel(headers, FILE, "exchange", SM90), source, options)
        np.testing.assert_array_equal(out, source.astype(np.float32) @ others)
        assert report.collectives["barrier.cluster"] == 4
        assert report.bulk_stores == 4 * 4 * phases


def test_a_grid_is_of_whole_clusters(headers: Path, seed: int) -> None:
    kernel = device_kernel(headers, FILE, "exchange", SM90)
    with pytest.raises(InvalidLaunchError, match="clusters of 2 in a grid of"):
        exchange(kernel, tiles(seed, 3, 1))


SYNC = r"barrier\.cluster\.arrive\.release\.aligned;\s+barrier\.cluster\.wait\.acquire\.aligned;"
_PLACE = r"\[(%r\d+)\]"
COPY = rf"(cp\.async\.bulk\.shared::cluster[^[]*){_PLACE},\s*{_PLACE},\s*(%r\d+),\s*{_PLACE};"
ARRIVE = r"mbarrier\.arrive\.shared::cluster[^;]*;"
IN_FLIGHT = ("write to a bulk load not waited for|write to a source of wgmma in flight|"
             "write to the source of a copy to another block")  # fmt: skip
# What stands in the PTX, which one of so many, what takes its place, and what is found.
FAULTS: dict[str, tuple[str, int, int, str, tuple[type[KernelError], ...], str]] = {
    "no cluster_sync at the start": (SYNC, 0, 2, "bar.sync 0;", (MbarrierError, RaceError),
        "no mbarrier is initialised|before its initialisation is seen"),
    "no cluster_sync at the end": (SYNC, 1, 2, "", (PendingAsyncCopyError, OutOfBoundsError),
        "while a copy of 2048 bytes|which has ended"),
    "a relaxed one at the end": ("arrive.release.aligned", 1, 2, "arrive.relaxed.aligned",
        (RaceError,), "may have ended"),
    "no fence of the initialisation": (r"fence\.mbarrier_init[^;]*;", 0, 1, "", (RaceError,),
        "mbarrier used before its initialisation is seen"),
    "no proxy fence": (r"fence\.proxy\.async[^;]*;", 0, 1, "", (RaceError,),
        "write not fenced for an asynchronous unit"),
    "no __syncwarp": (r"bar\.warp\.sync[^;]*;", 0, 1, "", (RaceError,), "read-after-write"),
    "no arrival at the peer": (ARRIVE, 0, 1, "", (DeadlockError,), "had 4 of 8 arrivals"),
    "a relaxed arrival": (r"arrive\.shared::cluster", 0, 1,
        "arrive.relaxed.cluster.shared::cluster", (RaceError,), IN_FLIGHT),
    "a copy to the block itself": (COPY, 0, 1, r"\1[\3], [\3], \4, [\5];",
        (InvalidOperandError,), "both must lie in one block of the cluster"),
    "a copy beyond the memory": (COPY, 0, 1, r"\1[\2+14352], [\3], \4, [\5];",
        (OutOfBoundsError,), "bytes of shared memory"),
    "a copy over a barrier": (COPY, 0, 1, r"\1[\2+6160], [\3], \4, [\5];", (MbarrierError,),
        "where the mbarrier of"),
    "a copy from beyond the memory": (COPY, 0, 1, r"\1[\2], [\3+16384], \4, [\5];",
        (OutOfBoundsError,), "bytes of shared memory"),
    "a copy between pieces": (COPY, 0, 1, r"\1[\2], [\3+8], \4, [\5];", (MisalignedAccessError,),
        "not a multiple of 16"),
    "a copy of a peer's memory": (COPY, 0, 1, r"\1[\2], [\2], \4, [\5];", (OutOfBoundsError,),
        "bytes of shared memory"),
    "a copy of too little": (COPY, 0, 1, r"\1[\2], [\3], 2032, [\5];", (DeadlockError,),
        "64 bytes announced that no copy in flight brings"),
    "a copy of odd bytes": (COPY, 0, 1, r"\1[\2], [\3], 2040, [\5];", (InvalidOperandError,),
        "a multiple of 16 is needed"),
    "a barrier that is none": (COPY, 0, 1, r"\1[\2], [\3], \4, [\5+16];", (MbarrierError,
        OutOfBoundsError), "mbarrier|shared memory"),
}  # fmt: skip


@EARLY
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(headers: Path, fault: str, early: bool, seed: int) -> None:
    pattern, which, count, new, errors, report = FAULTS[fault]
    text = with_fault(device_ptx(headers, FILE, SM90), pattern, which, count, new)
    kernel = compile_kernel(text, "exchange")
    for options in schedules(seed, options=LaunchOptions(early_loads=early)):
        with pytest.raises(errors, match=report):
            exchange(kernel, tiles(seed, 2, 3), options)


@pytest.mark.parametrize("n_bytes", [0, PIECE - 16, PIECE + 16])
def test_every_byte_is_announced(headers: Path, n_bytes: int, seed: int) -> None:
    kernel = device_kernel(headers, FILE, "exchange", SM90)
    with pytest.raises((DeadlockError, PendingAsyncCopyError, RaceError)):
        exchange(kernel, tiles(seed, 2, 2), n_bytes=n_bytes)
