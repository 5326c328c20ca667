"""Counts of the attention kernels: what the formulas and the H200 say they are.

The figures of ncu are those of docs/results/emulator-counts.md: one launch of 256 blocks (16 heads
of 1024 x 128). Every block does the same work, so one head in the emulator is a sixteenth of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from flash_helpers.emulator import Counts, LaunchOptions, compile_kernel
from flash_helpers.kernel_configs import FlashForwardKernelConfig, get_kernel_configs
from flash_helpers.kernel_ptx import kernel_ptx

from .attention import Problem

HEADS = 16
BLOCKS = 256


@dataclass(frozen=True)
class Ncu:
    """One launch on the H200."""

    ldmatrix: int  # smsp__inst_executed_op_ldsm.sum
    load_wavefronts: int  # l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum
    load_conflicts: int  # l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum


MEASURED = {
    "async_load_0_0_0": Ncu(1_056_768, 33_849_513, 29_589_673),
    "async_swizzled_load_0_0_0": Ncu(1_056_768, 4_259_940, 100),
    "async_eager_swizzled_load_2_2_2": Ncu(1_179_648, 4_751_622, 262),
    "async_eager_swizzled_load_0_2_2_optsoftmax": Ncu(1_056_768, 4_260_032, 192),
}


def config_named(suffix: str) -> FlashForwardKernelConfig:
    name = f"flash_fwd_sm80_fp16_d128_r64_c64_w4_{suffix}"
    return next(c for c in get_kernel_configs("prog") if c.kernel_name() == name)


def counts_of(config: FlashForwardKernelConfig, seq_len: int) -> Counts:
    kernel = compile_kernel(kernel_ptx(config), config.kernel_name())
    options = LaunchOptions(count=True)
    counts = Problem.make(config, seq_len, seed=1).run(kernel, options)[2].counts
    assert counts is not None
    return counts


@pytest.mark.parametrize("suffix", MEASURED)
def test_equal_to_ncu(suffix: str) -> None:
    config, ncu = config_named(suffix), MEASURED[suffix]
    classes = counts_of(config, 1024).by_class()
    ldmatrix, loads = classes["ldmatrix"], classes["shared ld"]
    assert HEADS * ldmatrix.executions == ncu.ldmatrix
    ideal = HEADS * (ldmatrix.ideal_wavefronts + loads.ideal_wavefronts)
    conflicts = HEADS * (ldmatrix.conflicts + loads.conflicts)
    # Wavefronts without conflicts are equal to the last one. The hardware counts a few conflicts
    # more, another number every time: about one a block, where other traffic is in the way.
    assert ncu.load_wavefronts - ncu.load_conflicts == ideal
    assert 0 <= ncu.load_conflicts - conflicts <= 2 * BLOCKS

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
