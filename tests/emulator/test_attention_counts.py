"""Counts of the attention kernels: what the formulas and the H200 say they are.

The figures of ncu are those of docs/results/emulator-counts.md: one launch of 256 blocks (16 heads
of 1024 x 128). Every block does the same work, so one head in the emulator is a sixteenth of it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.emulator import LaunchOptions, compile_kernel
from flash_helpers.kernel_configs import get_sm80_kernel_configs

from . import ncu_counts
from .attention import Problem
from .ncu_counts import BLOCKS, HEADS, classes_of, config_named

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = RESULTS / "emulator-counts.md"
HMMA = "sm__inst_executed_pipe_tensor_op_hmma.sum"


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
    rows = re.findall(r"^\| `(\w+)` ((?:\| [\d,]+ ){7})\|$", PAGE.read_text(), re.M)
    return {
        name: Measured(*(int(cell.replace(",", "")) for cell in cells.split("|")[1:]))
        for name, cells in rows
    }


FOUR = {
    "async_load_0_0_0",
    "async_swizzled_load_0_0_0",
    "async_eager_swizzled_load_2_2_2",
    "async_eager_swizzled_load_0_2_2_optsoftmax",
}


def test_every_kernel_of_the_progression_is_in_the_table() -> None:
    names = {config.kernel_name().split("_w4_")[1] for config in get_sm80_kernel_configs("prog")}
    assert names == set(measured()) > FOUR


@pytest.mark.parametrize(
    "suffix",
    [name if name in FOUR else pytest.param(name, marks=pytest.mark.slow) for name in measured()],
)
def test_equal_to_ncu(suffix: str) -> None:
    config, table = config_named(suffix), measured()[suffix]
    classes = classes_of(suffix)
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


def recorded_mma() -> dict[str, int]:
    """ncu's mma counts by kernel, from all recorded outputs that have them."""
    found: dict[str, int] = {}
    for path in sorted((RESULTS / "raw").glob("*-ncu-*.csv")):
        for kernel, values in ncu_counts.recorded(path.read_text()).items():
            if HMMA in values:
                found[kernel] = values[HMMA]
    return found


@pytest.mark.parametrize("suffix", sorted(FOUR))
def test_mma_counts_equal_ncu(suffix: str) -> None:
    mmas = recorded_mma()
    if suffix not in mmas:
        pytest.skip(f"no {HMMA} of {suffix} in docs/results/raw: the command is in {PAGE.name}")
    (row,) = ncu_counts.compare(suffix, {HMMA: mmas[suffix]})
    assert row.emulator == row.ncu


def test_the_comparison_with_a_recorded_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One kernel of the recorded output, with the mma count that the formula gives added; then with
    a count that is one off."""
    lines = (RESULTS / "raw" / "2026-11-20-h200-ncu-prog.csv").read_text().splitlines()
    name = "async_swizzled_load_0_0_0"
    kept = [line for line in lines if line.startswith('"ID"') or f"_w4_{name}" in line]
    mma = next(line for line in kept if "op_ldsm" in line).replace(
        "smsp__inst_executed_op_ldsm.sum", HMMA
    )
    output = tmp_path / "ncu.csv"
    for count, code in (("2,097,152", 0), ("2,097,153", 1)):
        output.write_text("\n".join([*kept, mma.replace("1,056,768", count)]))
        assert ncu_counts.main([str(output)]) == code
        assert ("DIFFERENT" in capsys.readouterr().out) == (code == 1)
    output.write_text("nothing")
    assert ncu_counts.main([str(output)]) == ncu_counts.main([str(tmp_path / "none")]) == 4
    assert ncu_counts.main([]) == 2


def test_counts_are_the_same_whatever_the_order() -> None:
    config = config_named("async_eager_swizzled_load_0_2_2_optsoftmax")
    kernel = compile_kernel(kernel_ptx(config), config.kernel_name())
    problem = Problem.make(config, 128, seed=1)
    forward, reverse = (
        problem.run(kernel, LaunchOptions(count=True, **order))[2].counts
        for order in ({"lane_order": "forward", "workers": 2}, {"lane_order": "reverse"})
    )
    assert forward == reverse is not None
