"""Counts of the attention kernels: what the formulas and the H200 say they are.

The figures of ncu are those of docs/results/emulator-counts.md: one launch of 256 blocks (16 heads
of 1024 x 128). Every block does the same work, so one head in the emulator is a sixteenth of it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from flash_helpers.emulator import Counts, LaunchOptions, compile_kernel
from flash_helpers.kernel_configs import FlashForwardKernelConfig, get_sm80_kernel_configs
from flash_helpers.kernel_ptx import kernel_ptx

from .attention import Problem

HEADS = 16
BLOCKS = 256
PAGE = Path(__file__).parents[2] / "docs" / "results" / "emulator-counts.md"


class Measured(NamedTuple):
    """A row of the table: what the emulator counts and what ncu does, times HEADS."""

    ldmatrix: int
    ncu_ldmatrix: int
    wavefronts: int
    ncu_wavefronts: int
    conflicts: int
    ncu_conflicts: int
    difference: int


def measured() -> dict[str, Measured]:
    rows = re.findall(r"^\| `(\w+)` \| ([\d, |]+) \|$", PAGE.read_text(), re.M)
    return {
        name: Measured(*(int(cell.replace(",", "")) for cell in cells.split("|")))
        for name, cells in rows
    }


FOUR = {
    "async_load_0_0_0",
    "async_swizzled_load_0_0_0",
    "async_eager_swizzled_load_2_2_2",
    "async_eager_swizzled_load_0_2_2_optsoftmax",
}


def config_named(suffix: str) -> FlashForwardKernelConfig:
    name = f"flash_fwd_sm80_fp16_d128_r64_c64_w4_{suffix}"
    return next(c for c in get_sm80_kernel_configs("prog") if c.kernel_name() == name)


def counts_of(config: FlashForwardKernelConfig, seq_len: int) -> Counts:
    kernel = compile_kernel(kernel_ptx(config), config.kernel_name())
    options = LaunchOptions(count=True)
    counts = Problem.make(config, seq_len, seed=1).run(kernel, options)[2].counts
    assert counts is not None
    return counts


def test_every_kernel_of_the_progression_is_in_the_table() -> None:
    names = {config.kernel_name().split("_w4_")[1] for config in get_sm80_kernel_configs("prog")}
    assert names == set(measured()) > FOUR


@pytest.mark.parametrize(
    "suffix",
    [name if name in FOUR else pytest.param(name, marks=pytest.mark.slow) for name in measured()],
)
def test_equal_to_ncu(suffix: str) -> None:
    config, table = config_named(suffix), measured()[suffix]
    classes = counts_of(config, 1024).by_class()
    ldmatrix, loads = classes["ldmatrix"], classes["shared ld"]
    assert HEADS * ldmatrix.executions == table.ldmatrix == table.ncu_ldmatrix
    assert HEADS * (ldmatrix.wavefronts + loads.wavefronts) == table.wavefronts
    assert HEADS * (ldmatrix.conflicts + loads.conflicts) == table.conflicts
    # Wavefronts without conflicts are equal to the last one. The hardware counts a few conflicts
    # more, about one a block, that the addresses do not explain (see the page).
    assert table.ncu_wavefronts - table.ncu_conflicts == table.wavefronts - table.conflicts
    assert table.ncu_conflicts - table.conflicts == table.difference
    assert 0 <= table.difference <= 2 * BLOCKS

    assert ldmatrix.wavefronts == (1 if config.swizzled else 8) * ldmatrix.ideal_wavefronts
    mmas = 2 * 1024 * 1024 * config.d_head // (16 * 8 * 16)
    assert classes["mma"].executions == mmas
    # Q once, K and V once for every 64 rows of Q; 16 bytes a lane, 4 wavefronts and 16 sectors.
    copies = (1 + 2 * 1024 // config.B_r) * 1024 * config.d_head * 2 // (16 * 32)
    copied = classes["cp.async"]
    assert copied.executions == copied.ideal_wavefronts // 4 == copies
    assert copied.sectors == copied.ideal_sectors == 16 * copies


def test_counts_are_the_same_whatever_the_order() -> None:
    config = config_named("async_eager_swizzled_load_0_2_2_optsoftmax")
    kernel = compile_kernel(kernel_ptx(config), config.kernel_name())
    problem = Problem.make(config, 128, seed=1)
    forward, reverse = (
        problem.run(kernel, LaunchOptions(count=True, **order))[2].counts
        for order in ({"lane_order": "forward", "workers": 2}, {"lane_order": "reverse"})
    )
    assert forward == reverse is not None
