"""The plain C++ headers of tile/, whose results are decoded, and static_for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.device.launching import device_kernel, launch, wanted

ROWS = 32  # kRows
STEPS = 16  # kSteps


def test_plain_headers_compile_without_cuda(headers: Path, tmp_path: Path) -> None:
    plain = sorted((headers / "flash" / "tile").glob("*.h"))
    assert len(plain) >= 3
    for header in plain:
        command = ["g++", "-std=c++20", "-Wall", "-Werror", f"-I{headers}", "-fsyntax-only"]
        command += ["-x", "c++", "-include", str(header), "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("d_head", [32, 64, 96, 128, 256])
def test_shared_tile(headers: Path, d_head: int, swizzled: bool) -> None:
    n_chunks = d_head // 8
    offsets, steps = wanted((ROWS, n_chunks), np.int32), wanted((n_chunks // 2, 2), np.int32)
    kernel = device_kernel(headers, "tile/shared_tile.cu")
    launch(kernel, offsets, steps, d_head, swizzled, block=1)
    row, chunk = np.indices(offsets.shape)
    moved = row % 8 if n_chunks % 8 == 0 else row // 2 % 4
    place = chunk ^ moved if swizzled else chunk
    np.testing.assert_array_equal(offsets, row * 2 * d_head + place * 16)
    if swizzled:  # what ldmatrix reads at once lies in eight different groups of four banks
        groups = np.sort(offsets.reshape(-1, 8, n_chunks) // 16 % 8, axis=1)
        assert (groups == np.arange(8)[:, None]).all()
    for i, (flipped, added) in enumerate(steps):
        for start in (0, 1):
            walked = (offsets[:, start] ^ flipped) + added
            np.testing.assert_array_equal(walked, offsets[:, start + 2 * i])


SCHEDULES = [
    (total, load, doubled)
    for total in (2, 4, 6, 8)
    for load in (0, 1, 2, 4, 8)
    for doubled in (False, True)
    if load == 0 or total % load == 0
]


@pytest.mark.parametrize(("total", "load", "doubled"), SCHEDULES)
def test_load_schedule(headers: Path, total: int, load: int, doubled: bool) -> None:
    """Every tile is loaded once, before its product, into registers that are free by then; no
    earlier and into no more registers than the configuration says."""
    table = wanted(3 + 3 * total, np.int32)
    launch(device_kernel(headers, "tile/load_schedule.cu"), table, total, load, doubled, block=1)
    n_slots, n_wanted, n_before = table[:3]
    slot, first, last = table[3:].reshape(total, 3).T

    # One slot cannot hold both this k-tile and the next.
    assert n_wanted == (2 if doubled and load == 1 else load or total)
    assert n_slots == min(n_wanted, total)
    held: dict[int, int] = {}
    loaded = list(range(n_before))
    for tile in loaded:
        held[int(slot[tile])] = tile
    for step in range(total):
        for tile in range(first[step], last[step]):
            assert held.get(int(slot[tile]), -1) < step, "the registers are still needed"
            held[int(slot[tile])] = tile
            loaded.append(tile)
        assert held[int(slot[step])] == step
        assert len(held) <= n_slots
        if load == 0:
            ahead = total
        elif doubled:
            ahead = min(total, step + n_slots)
        else:
            ahead = min(total, (step // load + 1) * load)
        assert len(loaded) == ahead
    assert loaded == list(range(total))


ADDRESSES = [0, 1024, 50 * 1024, 226 * 1024]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("rows", [16, 64, 176])
@pytest.mark.parametrize("swizzle", [64, 128])
def test_matrix_descriptor(headers: Path, swizzle: int, rows: int, address: int) -> None:
    """The fields as in the PTX ISA; a step changes the address only."""
    chunk_bytes = rows * swizzle
    out = wanted((STEPS, 2), np.uint64)
    kernel = device_kernel(headers, "tile/matrix_descriptor.cu")
    launch(kernel, out, np.uint32(address), chunk_bytes, swizzle, block=1)
    column, row = 16 * np.arange(STEPS), 16 * np.arange(STEPS)
    chunk, inside = column // (swizzle // 2), column % (swizzle // 2)
    starts = (address + chunk * chunk_bytes + 2 * inside, address + row * swizzle)
    for kind, (start, leading) in enumerate(zip(starts, (16, chunk_bytes), strict=True)):
        # The address field has room for the memory of a block; steps beyond it mean nothing.
        there = start < 228 * 1024
        bits = out[there, kind]
        fields = [bits >> np.uint64(at) & np.uint64((1 << n) - 1)
                  for at, n in ((0, 14), (14, 2), (16, 14), (30, 2), (32, 14), (46, 3), (49, 3),
                                (52, 10), (62, 2))]  # fmt: skip
        np.testing.assert_array_equal(fields[0], start[there] // 16)
        expected = [0, leading // 16, 0, 8 * swizzle // 16, 0, 0, 0, {128: 1, 64: 2}[swizzle]]
        for field, value in zip(fields[1:], expected, strict=True):
            np.testing.assert_array_equal(field, value)


@pytest.mark.parametrize(
    ("which", "indices"),
    list(enumerate([range(5), range(2, 11, 3), range(-4, 8, 4), (), (), range(7)])),
)
def test_static_for(headers: Path, which: int, indices: range) -> None:
    out = wanted(8, np.int32)
    launch(device_kernel(headers, "tile/static_for.cu"), out, which, block=1)
    assert list(out[1 : 1 + out[0]]) == list(indices)
