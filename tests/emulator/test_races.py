"""Planted races in small kernels: each is found, at the right lines, in every schedule, and its
corrected twin has none. races/run_racecheck.sh puts the same files before compute-sanitizer."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pytest

from flash_helpers.build.kernel_ptx import source_ptx
from flash_helpers.emulator import (
    EmulatedKernel,
    LaunchOptions,
    RaceError,
    compile_kernel,
    schedules,
)

from .support import aligned, run

FOLDER = Path(__file__).parent / "races"
RAW, WAR, WAW = "read-after-write", "write-after-read", "write-after-write"
IN_FLIGHT, UNWRITTEN = "read of an in-flight cp.async", "read of bytes never written"

# What may be reported: which of two accesses comes first is up to the schedule.
PLANTED: dict[str, tuple[set[str], str]] = {
    "reduction_read_early": ({RAW, WAR, UNWRITTEN}, "missing between the two: bar.sync"),
    "scan_write_early": ({RAW, WAR}, "missing between the two: bar"),
    "two_writers": ({WAW}, "missing between the two: bar.sync"),
    "copy_not_awaited": ({IN_FLIGHT, RAW}, "cp.async.wait_group by thread"),
    "copy_awaited_too_shallow": ({IN_FLIGHT, RAW}, "cp.async.wait_group by thread"),
    "buffer_reused_early": ({IN_FLIGHT, WAR, RAW}, "missing between the two: bar.sync"),
    "transpose_without_syncwarp": ({RAW, WAR, UNWRITTEN}, "bar.warp.sync (__syncwarp)"),
    "neighbour_block": ({RAW, WAR}, "nothing orders blocks within a launch"),
    "global_within_block": ({RAW, WAR}, "missing between the two: bar.sync"),
    "named_barriers": ({RAW, WAR}, "missing between the two: bar.sync"),
    "atomics_and_stores": ({RAW, WAR, WAW, UNWRITTEN}, "missing between the two: bar"),
    "double_buffer_off_by_one": ({RAW, WAR}, "missing between the two: bar.sync"),
}


@functools.cache
def _kernel(name: str, define: str = "") -> EmulatedKernel:
    path = FOLDER / f"{name}.cu"
    text = f'{define}\n#line 1 "{path}"\n{path.read_text()}'
    return compile_kernel(source_ptx(text, name, "compute_80", FOLDER), "kernel")


def _launch_size(source: str) -> tuple[int, int]:
    grid, block = (re.search(rf"#define {name} (\d+)", source) for name in ("GRID", "BLOCK"))
    assert grid and block
    return int(grid[1]), int(block[1])


def test_every_file_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.cu")} == set(PLANTED)


@pytest.mark.parametrize("schedule", schedules(seed=7), ids=lambda options: options.lane_order)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_race(name: str, schedule: LaunchOptions) -> None:
    source = (FOLDER / f"{name}.cu").read_text()
    grid, block = _launch_size(source)
    planted = {i for i, text in enumerate(source.splitlines(), 1) if text.endswith("// planted")}
    arrays = [aligned(4096, np.float32), aligned(4096, np.float32)]
    with pytest.raises(RaceError) as caught:
        run(_kernel(name), arrays, grid=grid, block=block, options=schedule)
    kinds, words = PLANTED[name]
    races = caught.value.races
    assert {race.kind for race in races} <= kinds
    assert any(words in str(race) for race in races)
    for race in races:
        lines = {
            line
            for access in (race.first, race.second)
            if access is not None
            for path, line in access.source.frames
            if Path(path).name == f"{name}.cu"
        }
        assert lines <= planted, str(race)
    run(_kernel(name, "#define FIXED"), arrays, grid=grid, block=block, options=schedule)
