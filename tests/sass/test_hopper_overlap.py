"""The softmax of the Hopper kernels runs under the matmul of the block before, in machine code too.

ptxas may move the wait for that matmul in front of the exponentials; the numbers stay right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from flash_helpers.hopper_config import HopperForwardKernelConfig, MaxPolicy
from flash_helpers.kernel_configs import DType
from flash_helpers.sass.listing import Instruction
from flash_helpers.sass.sources import compiled

LAZY = HopperForwardKernelConfig(
    DType.FP16, 64, 64, 2, 2, 1, MaxPolicy.LAZY, overlap=True, ping_pong=True, o_in_q=False
)
CONFIGS = [
    LAZY,
    replace(LAZY, max_policy=MaxPolicy.EXACT, n_mma_groups=3),
    replace(LAZY, max_policy=MaxPolicy.OPTIMISTIC, ping_pong=False),
]


def exponentials_in_flight(instructions: Iterable[Instruction]) -> Iterator[int]:
    """For each wait that leaves one group of matmuls in flight: how many exponentials come before
    the wait for that one."""
    counted = -1
    for instruction in instructions:
        if instruction.opcode.startswith("WARPGROUP.DEPBAR"):
            if counted >= 0:
                yield counted
            counted = 0 if instruction.operands.endswith("0x1") else -1
        elif counted >= 0 and instruction.matches("MUFU.EX2"):
            counted += 1


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_exponentials_run_under_the_matmul(config: HopperForwardKernelConfig) -> None:
    (listing,) = compiled([config]).select([config.kernel_name()])
    found = list(exponentials_in_flight(listing.instructions))
    per_thread = config.block_n // 2
    assert len(found) == (2 if config.max_policy is MaxPolicy.OPTIMISTIC else 1)
    assert min(found) >= per_thread, found


def test_a_wait_in_front_is_seen() -> None:
    def at(opcode: str, operands: str = "") -> Instruction:
        return Instruction(0, "", opcode, operands)

    one, none = (at("WARPGROUP.DEPBAR.LE", f"gsb0, 0x{left}") for left in (1, 0))
    exponential = at("MUFU.EX2", "R1, R2")
    assert list(exponentials_in_flight([one, exponential, exponential, none])) == [2]
    assert list(exponentials_in_flight([one, exponential, none, exponential])) == [1]
    assert list(exponentials_in_flight([none, exponential, none])) == []
