"""Barriers and matrix products that a part of a warp or of the block comes to."""

from __future__ import annotations

import pytest

from flash_helpers.emulator import (
    DivergentCollectiveError,
    InvalidOperandError,
    KernelError,
    schedules,
)

from .support import aligned, run_ptx

# Of each warp the first half has exited.
HALF = "setp.lt.u32 %q2, %lane, 16; @%q2 bra OUT;\n{}\nOUT:\n"
MMA = ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, "
       "{%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};")  # fmt: skip
TWO_COUNTS = "setp.lt.u32 %q1, %t, 32; @%q1 bra A; bar.sync 1, 32; bra OUT;\nA: bar.sync 1, 64;\n"

ERRORS: list[tuple[str, str, type[KernelError], str]] = [
    ("lanes that have exited at a barrier", HALF.format("bar.sync 0;"), DivergentCollectiveError,
     "have exited"),
    ("at a matrix product", HALF.format(MMA), DivergentCollectiveError, "needs all 32 lanes"),
    ("two counts at one barrier", TWO_COUNTS + "OUT:", InvalidOperandError, "threads wait there"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "error", "text"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS]
)
def test_an_error(body: str, error: type[KernelError], text: str) -> None:
    (forward, *_) = schedules(seed=1)
    with pytest.raises(error) as caught:
        run_ptx(body, [aligned(4, "uint32")], block=64, options=forward)
    assert text in caught.value.message
