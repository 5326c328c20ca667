"""Every step in the emulator: right, free of races, and the same in every order."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.emulator import LaunchOptions, compile_kernel
from flash_helpers.kernel_configs import (
    DType,
    FlashForwardKernelConfig,
    KernelConfig,
    PreviousKernelConfig,
)
from flash_helpers.kernels.family import Step
from flash_helpers.kernels.history import load_steps
from tests.emulator.attention import Problem
from tests.emulator.campaign import campaign
from tests.emulator.mutations import synchronisation

ROOT = Path(__file__).resolve().parents[2]
STEPS = load_steps()
SHAPES = [(128, 64), (256, 384)]  # query rows, keys: one KV block alone, and six
ROW_RULE = 1.25


def check(config: KernelConfig, seed: int) -> None:
    kernel = compile_kernel(kernel_ptx(config), config.kernel_name())
    for rows, keys in SHAPES:
        problem = Problem.make(config, rows, seed, keys)
        o, lse, report = problem.run(kernel, LaunchOptions(races="error"))
        assert problem.row_error(o) <= ROW_RULE
        np.testing.assert_allclose(lse, problem.expected_lse, atol=2e-5)
        assert report.mma_instructions == 2 * rows * keys * config.d_head // (16 * 8 * 16)
        backwards = LaunchOptions(lane_order="reverse", workers=1, races="error")
        again, lse_again, _ = problem.run(kernel, backwards)
        np.testing.assert_array_equal(again, o)
        np.testing.assert_array_equal(lse_again, lse)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"step{step.number:02d}")
def test_right_and_free_of_races(step: Step, seed: int) -> None:
    check(step.config, seed)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"step{step.number:02d}")
def test_the_other_dtype_and_head_size(step: Step, seed: int) -> None:
    config = step.config
    if isinstance(config, PreviousKernelConfig):
        changed: KernelConfig = replace(config, plain=other(config.plain))
    else:
        assert isinstance(config, FlashForwardKernelConfig)
        changed = other(config)
    check(changed, seed)


def other(config: FlashForwardKernelConfig) -> FlashForwardKernelConfig:
    return replace(config, dtype=DType.BF16, d_head=64)


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 3, 8, 10, 13, 15])
def test_every_synchronisation_is_needed(number: int, seed: int) -> None:
    """A barrier, wait or commit removed from a body is found, with its place."""
    config = STEPS[number - 1].config
    mutants = synchronisation(kernel_ptx(config))
    assert len(mutants) >= 10
    outcome = campaign(config, mutants, seed, by_reports=True)
    print(outcome)
    assert outcome.survivors == []


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--version", "1,9,16"], 0, "3 kernel(s) selected: 3 passed"),
        (["--version", "17"], 2, "expected 1 to 16"),
        (["--version", ""], 2, "expected 1 to 16"),
        (["--version", "3", "--kernels", "prog"], 2, "exclude each other"),
    ],
)
def test_run_kernels_by_version(arguments: list[str], code: int, expected: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/benchmark/run_kernels.py", "128", "--device", "emulator",
         *arguments],
        capture_output=True, text=True, cwd=ROOT, timeout=300,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert expected in done.stdout + done.stderr
