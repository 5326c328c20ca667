"""The softmax of the Hopper kernels runs under the matmul of the block before, in machine code too.

ptxas may move the wait for that matmul in front of the exponentials; the numbers stay right.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from flash_helpers.kernel_configs import DType
from flash_helpers.kernels.sm90_fwd.config import HopperForwardKernelConfig, MaxPolicy
from flash_lab.sass.listing import Instruction
from flash_lab.sass.sources import compiled
from tests.triton.overlap import overlaps

LAZY = HopperForwardKernelConfig(
    DType.FP16, 64, 64, 2, 2, 1, MaxPolicy.LAZY, overlap=True, ping_pong=True, o_in_q=False
)
CONFIGS = [
    LAZY,
    replace(LAZY, max_policy=MaxPolicy.EXACT, n_mma_groups=3),
    replace(LAZY, max_policy=MaxPolicy.OPTIMISTIC, ping_pong=False),
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_exponentials_run_under_the_matmul(config: HopperForwardKernelConfig) -> None:
    (listing,) = compiled([config]).select([config.kernel_name()])
    found = [overlap.beside for overlap in overlaps(listing.instructions)]
    per_thread = config.block_n // 2
    assert len(found) == (2 if config.max_policy is MaxPolicy.OPTIMISTIC else 1)
    assert min(found) >= per_thread, found


def test_a_wait_in_front_is_seen() -> None:
    def at(opcode: str, operands: str = "") -> Instruction:
        return Instruction(0, "", opcode, operands)

    one, none = (at("WARPGROUP.DEPBAR.LE", f"gsb0, 0x{left}") for left in (1, 0))
    exponential = at("MUFU.EX2", "R1, R2")
    for order, beside in (
        ([one, exponential, exponential, none], [2]),
        ([one, exponential, none, exponential], [1]),
        ([none, exponential, none], []),
    ):
        assert [overlap.beside for overlap in overlaps(order)] == beside
