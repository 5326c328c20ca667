"""A test of the tester: bugs planted in the PTX of the real kernels, every one of which must be
found, by an error report or by the row rule. None needs the race detector of the next stage, and no
barrier is redundant: the first run of this file found one, which the kernel has lost since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flash_helpers.emulator import KernelError, LaunchOptions, compile_kernel, compile_kernels
from flash_helpers.emulator.source_lines import SourceLines
from flash_helpers.kernel_configs import DType, FlashForwardKernelConfig
from flash_helpers.kernel_ptx import kernel_ptx

from .attention import Problem
from .mutations import Mutant, arithmetic_and_addressing, synchronisation

TOLERANCE = 1.25  # eps, the row rule

EAGER = FlashForwardKernelConfig(
    DType.FP16, 128, 64, 64, 4, True, True, True, 0, 2, 2, True, True
)  # fmt: skip
LAZY = replace(
    EAGER, eager_load_blocks=False, optimized_softmax=False, mma_double_buffer_loads=False
)
THROUGH_REGISTERS = replace(LAZY, async_copy=False, dtype=DType.BF16)
WIDE = replace(EAGER, dtype=DType.BF16, d_head=64, B_r=128, Q_mma_load_K_tiles=2)


def _is_found(problem: Problem, ptx: str, name: str) -> bool:
    kernel = compile_kernel(ptx, name)
    for options in (LaunchOptions(lane_order="forward"), LaunchOptions(lane_order="reverse")):
        try:
            o, _, _ = problem.run(kernel, options)
        except KernelError:
            return True
        if not problem.row_error(o) <= TOLERANCE:
            return True
    return False


def _check(config: FlashForwardKernelConfig, mutants: list[Mutant], seq_len: int = 192) -> None:
    name, ptx = config.kernel_name(), kernel_ptx(config)
    problem = Problem.make(config, seq_len, seed=1)
    o, _, _ = problem.run(compile_kernel(ptx, name))
    assert problem.row_error(o) <= TOLERANCE, "the unmutated kernel must pass"
    compile_kernels([(mutant.ptx, name) for mutant in mutants])
    survivors = [m for m in mutants if not _is_found(problem, m.ptx, name)]
    print(f"planted {len(mutants)} found {len(mutants) - len(survivors)}")
    assert [f"{m} at {SourceLines(ptx).locate(m.line)}" for m in survivors] == []


@pytest.mark.parametrize(
    ("config", "minimum"),
    [(EAGER, 17), (LAZY, 10), (THROUGH_REGISTERS, 4)],
    ids=["eager", "lazy", "through registers"],
)
def test_every_synchronisation_is_needed(config: FlashForwardKernelConfig, minimum: int) -> None:
    mutants = synchronisation(kernel_ptx(config))
    assert len(mutants) >= minimum  # an empty list of mutants would prove nothing
    _check(config, mutants)


def test_arithmetic_and_addressing() -> None:
    mutants = arithmetic_and_addressing(kernel_ptx(EAGER), row_bytes=256, n_swizzles=4)
    assert len({mutant.name for mutant in mutants}) == 9
    _check(EAGER, mutants)


@pytest.mark.slow
@pytest.mark.parametrize("config", [EAGER, LAZY, THROUGH_REGISTERS, WIDE], ids=str)
def test_all_mutants(config: FlashForwardKernelConfig) -> None:
    ptx = kernel_ptx(config)
    more = arithmetic_and_addressing(ptx, row_bytes=2 * config.d_head, n_swizzles=100)
    _check(config, [*synchronisation(ptx), *more], seq_len=256)
