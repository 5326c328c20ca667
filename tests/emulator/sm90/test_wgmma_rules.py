"""What wgmma may not do, and what orders its accesses; tensor maps that are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flash_helpers.emulator import (
    DeadlockError,
    DivergentCollectiveError,
    InvalidOperandError,
    KernelError,
    LaunchOptions,
    OutOfBoundsError,
    WgmmaError,
    pack_tensor_map,
    schedules,
)

from .test_rules import (
    SETUP,
    UNFENCED,
    launch,
)

WGMMA_SETUP = (
    SETUP
    + """{ .reg .b32 u; shr.u32 u, %r20, 4; cvt.u64.u32 %x10, u; }
mov.u64 %x11, 0x4000004000000000; or.b64 %x10, %x10, %x11;
fence.proxy.async.shared::cta; bar.sync 0; setp.eq.u32 %q5, %t, %t;
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
"""
)
FILL = """mov.u32 %r1, %r10; mov.u32 %r2, 0; F: st.shared.u32 [%r1], 0; add.u32 %r1, %r1, 512;
add.u32 %r2, %r2, 1; setp.lt.u32 %q9, %r2, 16; @%q9 bra F; """
FENCE, WCOMMIT = "wgmma.fence.sync.aligned;\n", "wgmma.commit_group.sync.aligned;\n"
WGMMA = ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %x10, %x10, %q5,"
         " 1, 1, 0, 0;\n")  # fmt: skip
WDONE = "wgmma.wait_group.sync.aligned 0;\n"
GOOD = FENCE + WGMMA + WCOMMIT + WDONE
TOUCH = "add.f32 %f9, %f1, %f1;\n"

WGMMA_ERRORS: list[tuple[str, str, type[KernelError], str]] = [
    ("no fence at all", WGMMA + WCOMMIT + WDONE, WgmmaError, "a wgmma.fence is missing"),
    ("no fence behind a write", GOOD + "mov.f32 %f2, 0f00000000;" + WGMMA + WCOMMIT + WDONE,
     WgmmaError, "uses %f2, which the thread has touched"),
    ("read in flight", FENCE + WGMMA + WCOMMIT + TOUCH + WDONE, WgmmaError, "touches %f1 while"),
    ("read before the commit", FENCE + WGMMA + WDONE + TOUCH + WCOMMIT + WDONE, WgmmaError,
     "touches %f1 while"),
    ("one group too many in flight", FENCE + WGMMA + WCOMMIT + "wgmma.wait_group.sync.aligned 1;"
     + TOUCH + WDONE, WgmmaError, "touches %f1 while"),
    ("never waited for", FENCE + WGMMA + WCOMMIT, WgmmaError, "1 groups not waited for"),
    ("never committed", FENCE + WGMMA, WgmmaError, "1 not committed"),
    ("other operands in one lane", "setp.eq.u32 %q2, %t, 7; @%q2 add.u64 %x10, %x10, 64;" + GOOD,
     DivergentCollectiveError, "other wgmma, or with other operands, than lane 0"),
    ("other operands in one warp", "@%q1 add.u64 %x10, %x10, 64;" + GOOD,
     DivergentCollectiveError, "issues another wgmma than a warp before it"),
    ("a warp leaves it out", "@%q1 bra END;" + GOOD + "END:", DeadlockError, "wait at wgmma"),
    ("a base offset", "mov.u64 %x11, 0x0002000000000000; or.b64 %x10, %x10, %x11;" + GOOD,
     InvalidOperandError, "has a base offset"),
    ("beyond the memory", "add.u64 %x10, %x10, 0x200;" + GOOD, OutOfBoundsError, "wgmma reads"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "error", "text"), [e[1:] for e in WGMMA_ERRORS], ids=[e[0] for e in WGMMA_ERRORS]
)
def test_a_wgmma_error(body: str, error: type[KernelError], text: str) -> None:
    setup = WGMMA_SETUP.replace("fence.proxy", FILL + "fence.proxy")
    launch(GOOD + TOUCH, block=128, setup=setup)
    for options in schedules(seed=5):
        with pytest.raises(error) as caught:
            launch(body, options, block=128, setup=setup)
        assert text in caught.value.message


def test_a_warpgroup_needs_four_warps() -> None:
    with pytest.raises(DivergentCollectiveError, match="its warpgroup lacks warps"):
        launch(GOOD, block=96, setup=WGMMA_SETUP)


def test_warps_of_a_warpgroup_may_wait_for_each_other() -> None:
    """Warp 1 multiplies when warp 0 has: on an H200 warp 0 gets past no matmul before all others
    come to it (docs/results/raw/2026-11-29-h200-warps-meet.txt)."""
    of_warp = "shr.u32 %r3, %t, 5; setp.ne.u32 %q3, %r3, {}; @%q3 bra {}; {}\n{}: "
    body = of_warp.format(1, "MULTIPLY", "bar.sync 1, 64;", "MULTIPLY") + FENCE + WGMMA + WCOMMIT
    hangs = body + of_warp.format(0, "DONE", "bar.arrive 1, 64;", "DONE") + WDONE
    setup = WGMMA_SETUP.replace("fence.proxy", FILL + "fence.proxy")
    for options in schedules(seed=3):
        launch(hangs, options, block=128, setup=setup)
        launch(GOOD, replace(options, warps_meet=True), block=128, setup=setup)
        with pytest.raises(DeadlockError, match="wait at wgmma"):
            launch(hangs, replace(options, warps_meet=True), block=128, setup=setup)


def test_matrices_that_lanes_write_need_a_fence() -> None:
    setup = WGMMA_SETUP.replace("fence.proxy.async.shared::cta;", FILL)
    _, report = launch(GOOD, LaunchOptions(races="report"), block=128, setup=setup)
    assert {race.kind for race in report.races} == {UNFENCED}


def test_released_too_early() -> None:
    """Thread 128 overwrites what a warpgroup still multiplies: before and behind its wait."""
    setup = WGMMA_SETUP.replace("fence.proxy", FILL + "fence.proxy")
    over = "setp.lt.u32 %q3, %t, 128; @%q3 bra GROUP; bar.sync 1, 160; "
    over += (
        "setp.eq.u32 %q4, %t, 128; @%q4 st.shared.u32 [%r20], %t; bra END;\nGROUP:"
        + FENCE
        + WGMMA
        + WCOMMIT
    )
    early = over + "bar.arrive 1, 160;" + WDONE + "END:"
    late = over + WDONE + "bar.arrive 1, 160;\nEND:"
    setup = setup.replace("setp.eq.u32 %q5", "bar.sync 0; setp.eq.u32 %q5")
    for options in schedules(seed=2, options=LaunchOptions(races="report")):
        kinds = [
            {race.kind for race in launch(body, options, block=160, setup=setup)[1].races}
            for body in (early, late)
        ]
        assert kinds == [{"write to a source of wgmma in flight"}, set()]


BAD_MAPS: list[tuple[str, dict[str, Any], str]] = [
    ("address", {"address": 8}, "0x8 is not a multiple of 16"),
    ("element", {"element_bytes": 3}, "elements of 3 bytes"),
    ("rank", {"dims": (8,) * 6, "strides": (16,) * 5, "box": (8,) * 6}, "6 dimensions"),
    ("strides", {"strides": ()}, "0 strides for 2 dimensions"),
    ("stride", {"strides": (120,)}, "stride 120 of dimension 1"),
    ("empty", {"dims": (64, 0)}, "dimension 1 has 0 elements"),
    ("box", {"box": (64, 257)}, "box of 257 in dimension 1; 1 to 256"),
    ("box row", {"box": (4, 8)}, "a box row of 8 bytes is not a multiple of 16"),
    ("swizzle", {"swizzle": 16}, "swizzle of 16 bytes"),
    ("span", {"box": (128, 8)}, "a box row of 256 bytes exceeds the swizzle's 128"),
]


@pytest.mark.parametrize(
    ("change", "text"), [m[1:] for m in BAD_MAPS], ids=[m[0] for m in BAD_MAPS]
)
def test_a_tensor_map_that_is_refused(change: dict[str, Any], text: str) -> None:
    good: dict[str, Any] = {
        "address": 4096, "element_bytes": 2, "dims": (64, 32), "strides": (128,), "box": (64, 8),
        "swizzle": 128,
    }  # fmt: skip
    assert len(pack_tensor_map(**good)) == 128
    with pytest.raises(ValueError, match="tensor map: ") as caught:
        pack_tensor_map(**(good | change))
    assert text in str(caught.value)
