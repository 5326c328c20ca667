"""tma_multicast_5d of ptx/tma.cuh: boxes for both blocks of a cluster, and what goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import (
    DeadlockError,
    EmulatedKernel,
    InvalidOperandError,
    KernelError,
    LaunchOptions,
    MbarrierError,
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

from .test_cluster import ARRIVE, EARLY, SYNC
from .test_tma import map_of

FILE = "ptx/multicast.cu"
BOX = (1, 1, 1, 16, 64)
BYTES = 16 * 64 * 2


def share(
    kernel: EmulatedKernel, source: Any, options: LaunchOptions | None = None, blocks: int = 3
) -> Any:
    clusters, phases = source.shape[:2]
    out = wanted((2 * clusters, *source.shape[1:]), np.uint16)
    report = launch(kernel, map_of(source, BOX, 128), map_of(out, BOX, 128), phases, BYTES, blocks,
                    grid=2 * clusters, block=64, shared=BYTES + 16, memory=[source, out],
                    options=options)  # fmt: skip
    return out, report


def boxes(seed: int, clusters: int, phases: int) -> Any:
    shape = (clusters, phases, *BOX[2:])
    return given(np.random.default_rng(seed).integers(0, 1 << 16, shape), np.uint16)


@pytest.mark.parametrize("phases", [1, 2, 5])
@EARLY
def test_boxes_come_to_both_blocks(headers: Path, early: bool, phases: int, seed: int) -> None:
    source = boxes(seed, 2, phases)
    for options in schedules(seed, options=LaunchOptions(early_loads=early)):
        out, report = share(device_kernel(headers, FILE, "share", SM90), source, options)
        np.testing.assert_array_equal(out, source.repeat(2, axis=0))
        assert report.bulk_loads == 2 * 2 * phases


@pytest.mark.parametrize(
    ("blocks", "errors", "report"),
    [(0, InvalidOperandError, "multicast to blocks 0x0 of a cluster of 2"),
     (7, InvalidOperandError, "multicast to blocks 0x7 of a cluster of 2"),
     (2, DeadlockError, "2048 bytes announced that no copy in flight brings")],
)  # fmt: skip
def test_blocks_are_named(
    headers: Path, blocks: int, errors: type[KernelError], report: str, seed: int
) -> None:
    with pytest.raises(errors, match=report):
        share(device_kernel(headers, FILE, "share", SM90), boxes(seed, 1, 3), blocks=blocks)


# What stands in the PTX, which one of so many, what takes its place, and what is found.
FAULTS: dict[str, tuple[str, int, int, str, tuple[type[KernelError], ...], str]] = {
    "no cluster_sync at the start": (SYNC, 0, 2, "bar.sync 0;", (MbarrierError, RaceError),
        "no mbarrier is initialised|before its initialisation is seen"),
    "none at the end": (SYNC, 1, 2, "", (OutOfBoundsError, PendingAsyncCopyError, RaceError),
        "which has ended|in flight|may have ended"),
    "no fence of the initialisation": (r"fence\.mbarrier_init[^;]*;", 0, 1, "", (RaceError,),
        "mbarrier used before its initialisation is seen"),
    "no arrival at the peer": (ARRIVE, 0, 1, "", (DeadlockError,), "had 1 of 2 arrivals"),
    "a relaxed arrival": (r"arrive\.shared::cluster", 0, 1,
        "arrive.relaxed.cluster.shared::cluster", (RaceError,),
        "write to the source of a bulk store|write to a bulk load not waited for"),
}  # fmt: skip


@EARLY
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(headers: Path, fault: str, early: bool, seed: int) -> None:
    pattern, which, count, new, errors, report = FAULTS[fault]
    text = with_fault(device_ptx(headers, FILE, SM90), pattern, which, count, new)
    kernel = compile_kernel(text, "share")
    for options in schedules(seed, options=LaunchOptions(early_loads=early)):
        with pytest.raises(errors, match=report):
            share(kernel, boxes(seed, 1, 3), options)
