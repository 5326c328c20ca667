"""Every schedule gives the same bits, and none a race report, on the real kernels; a kernel that
depends on its schedule is caught."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.emulator import (
    EmulatedKernel,
    LaunchOptions,
    ScheduleError,
    compare_schedules,
    compile_kernels,
    schedules,
)
from flash_helpers.kernel_configs import FlashForwardKernelConfig, get_sm80_kernel_configs

from .attention import Problem
from .support import aligned, cuda_kernel, run

SHAPES = ((128, 128), (128, 384), (256, 128))  # rows of Q, rows of K and V
SETS = ("tune", "prog", "progall", "d64", "pairs")


def _configs(*words: str) -> list[FlashForwardKernelConfig]:
    return sorted({config for word in words for config in get_sm80_kernel_configs(word)})


def _check(
    config: FlashForwardKernelConfig, kernel: EmulatedKernel, shape: tuple[int, int], seed: int
) -> None:
    problem = Problem.make(config, shape[0], seed, shape[1])

    def outputs(options: LaunchOptions) -> tuple[Any, Any]:
        o, lse, report = problem.run(kernel, options)  # a race is an error
        assert problem.needed().wrong(report) == ""
        return o, lse

    o, _ = compare_schedules(outputs, seed)
    assert problem.row_error(o) <= 1.25


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_no_schedule_changes_a_bit(part: int, seed: int) -> None:
    configs = _configs("prog", "pairs")[part::2]
    kernels = compile_kernels([(kernel_ptx(c), c.kernel_name()) for c in configs])
    for config, kernel in zip(configs, kernels, strict=True):
        _check(config, kernel, SHAPES[0], seed)


@pytest.mark.slow
@pytest.mark.parametrize("config", _configs(*SETS), ids=lambda config: config.kernel_name())
def test_all_kernels_in_all_schedules(config: FlashForwardKernelConfig, seed: int) -> None:
    (kernel,) = compile_kernels([(kernel_ptx(config), config.kernel_name())])
    for shape in SHAPES:
        _check(config, kernel, shape, seed)


RACING = """extern "C" __global__ void kernel(int* out) {
  __shared__ int last;
  last = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = last;
}"""


def test_a_result_that_depends_on_the_schedule_is_caught() -> None:
    kernel = cuda_kernel(RACING)

    def outputs(options: LaunchOptions) -> list[Any]:
        out = aligned(64, np.int32)
        run(kernel, [out], block=64, options=options)
        return [out]

    with pytest.raises(ScheduleError, match="output 0 differs from byte 0 on between forward and"):
        compare_schedules(outputs, seed=1, options=LaunchOptions(races="off"))


# The lanes of a warp count their turns: each sees how far the others are.
TURNS = """extern "C" __global__ void kernel(int* out) {
  __shared__ int turns[64];
  turns[threadIdx.x] = 0;
  __syncthreads();
  for (int i = 0; i < 100; ++i) turns[threadIdx.x] += 1;
  out[threadIdx.x] = *(volatile int*)&turns[threadIdx.x ^ 33];
}"""


def test_random_schedules_switch_between_accesses_and_repeat() -> None:
    kernel = cuda_kernel(TURNS.replace("int turns", "volatile int turns"))
    seen = []
    for options in (*schedules(seed=5), *schedules(seed=5), *schedules(seed=6)):
        out = aligned(64, np.int32)
        run(kernel, [out], block=64, options=LaunchOptions(
            lane_order=options.lane_order, seed=options.seed, races="off", workers=1
        ))  # fmt: skip
        seen.append(out)
    forward, reverse, random = seen[:3]
    # Without preemption a thread runs from barrier to barrier: it sees others at 0 or 100 only.
    assert set(np.unique(forward)) == set(np.unique(reverse)) == {0, 100}
    assert len(np.unique(random)) > 8
    np.testing.assert_array_equal(random, seen[5])
    assert (random != seen[8]).any()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("early_loads", "forward order, with early loads"),
        ("warps_meet", "random order, with warps that meet"),
    ],
)
def test_loads_that_land_early_and_warps_that_meet_are_schedules(option: str, words: str) -> None:
    runs: list[LaunchOptions] = []

    def outputs(options: LaunchOptions) -> list[Any]:
        runs.append(options)
        return [np.array([getattr(options, option)])]

    with pytest.raises(ScheduleError, match=words):
        compare_schedules(outputs, seed=1)
    orders = ["forward", "reverse", "random", "forward", "random"]
    assert [run.lane_order for run in runs] == orders[: 5 if option == "warps_meet" else 4]
