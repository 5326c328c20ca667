"""The Gluon attention kernels in the emulator: right under every schedule, without a race, and
wrong without any one of their synchronisations."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from flash_helpers.emulator import LaunchOptions, compare_schedules, schedules

from ..conformance.forms import forms_of
from .conformance.suite import forms_under_test
from .gluon_attention import GluonKernel, GluonProblem, Lengths
from .gluon_mutants import campaign
from .mutations import hopper_synchronisation

pytest.importorskip("triton", reason="Triton compiles the kernels")
from flash_attention.gluon.config import GluonForwardConfig, configs

# Small blocks: Triton and g++ take less time.
TWO = GluonForwardConfig(BLOCK_M=128, BLOCK_N=64, NUM_BUFFERS=2)
THREE = GluonForwardConfig(192, 64, 2, 12, 3, "warp", PERSISTENT=True)
FEW = [
    GluonKernel(TWO, True, False, 64, True),
    GluonKernel(THREE, True, True, 64, False),
    GluonKernel(TWO, False, True, 128, True),
    GluonKernel(THREE, False, False, 64, False),
]
ALL = [
    GluonKernel(config, ping_pong, bf16, d_head, causal)
    for ping_pong, bf16, d_head, causal in itertools.product((False, True), (False, True), (64, 128), (False, True))
    for config in configs(ping_pong, d_head)
]
LENGTHS = [Lengths(n, n) for n in (1, 63, 113, 127)] + [
    Lengths(203, 300, batch=2, heads=2, kv_heads=1),
    Lengths(300, 203, heads=3, kv_heads=3),
]


def _check(kernel: GluonKernel, lengths: Lengths, seed: int) -> None:
    problem = GluonProblem(kernel, lengths, seed)

    def run(options: LaunchOptions) -> list[Any]:
        o, report = problem.run(options)
        comparison = problem.comparison(o)
        assert comparison.passed, (lengths, options.lane_order, comparison.describe())
        assert report.mma_instructions > 0
        return [o.float().numpy()]

    compare_schedules(run, seed)


@pytest.mark.parametrize("kernel", FEW, ids=str)
def test_right_under_every_schedule(kernel: GluonKernel, seed: int) -> None:
    for lengths in LENGTHS:
        _check(kernel, lengths, seed)
    assert set(forms_of(kernel.compiled().ptx)) <= forms_under_test()


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ALL, ids=str)
def test_all_kernels(kernel: GluonKernel, seed: int) -> None:
    for lengths in LENGTHS:
        _check(kernel, lengths, seed)
    assert set(forms_of(kernel.compiled().ptx)) <= forms_under_test()
