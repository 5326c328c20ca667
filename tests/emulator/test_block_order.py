"""What orders accesses of different blocks: fences around flags, and nothing else. Blocks that have
flags or atomic updates take turns."""

from __future__ import annotations

import numpy as np
import pytest

from flash_helpers.emulator import (
    DivergentCollectiveError,
    LaunchOptions,
    LaunchReport,
    compile_kernel,
    schedules,
)

from .race_kinds import RAW, WAW, Kinds, check_kinds
from .support import aligned, ptx_kernel, run

# %r10 is the block, %q0 thread 0, %q1 thread 32; words of the second array are flags.
SETUP = """mov.u32 %r10, %ctaid.x; mov.u32 %r11, %nctaid.x; setp.eq.u32 %q0, %t, 0;
setp.eq.u32 %q1, %t, 32; setp.eq.u32 %q2, %r10, {writer};
"""
STORE, LOAD = "st.global.u32 [%p0+256], %t;\n", "ld.global.u32 %r30, [%p0+256];\n"
SYNC, END = "bar.sync 0;\n", "END:\n"
GPU = "fence.acq_rel.gpu;\n"


def wait(load: str) -> str:
    return f"P: {load} setp.eq.u32 %q9, %r31, 1; @!%q9 bra P;\n"


# How a flag is set, how it is waited for.
VOLATILE = ("st.volatile.global.u32 [%p1], 1;\n", wait("ld.volatile.global.u32 %r31, [%p1];"))
RELAXED = ("st.relaxed.gpu.global.u32 [%p1], 1;\n", wait("ld.relaxed.gpu.global.u32 %r31, [%p1];"))
ATOMIC = ("red.global.add.u32 [%p1], 1;\n", wait("atom.global.or.b32 %r31, [%p1], 0;"))
RELEASED = ("st.release.gpu.global.u32 [%p1], 1;\n", wait("ld.acquire.gpu.global.u32 %r31, [%p1];"))
ADDED = ("red.release.gpu.global.add.u32 [%p1], 1;\n",
         wait("atom.acquire.gpu.global.or.b32 %r31, [%p1], 0;"))  # fmt: skip
BLOCK = ("st.release.cta.global.u32 [%p1], 1;\n", wait("ld.acquire.cta.global.u32 %r31, [%p1];"))


def hand_over(flag: tuple[str, str], before: str = "", behind: str = "", by: int = 0) -> str:
    """Block `by` writes and sets the flag, another waits for it and reads."""
    written, waited = flag
    body = "@!%q0 bra END;\n@!%q2 bra READ;\n" + STORE + before + written + "bra END;\nREAD: "
    return SETUP.format(writer=by) + body + waited + behind + LOAD + END


def through_threads() -> str:
    """Thread 32 writes in one block and reads in another; thread 0 has the flag."""
    body = "@!%q2 bra READ;\n@%q1 " + STORE + SYNC + GPU + "@%q0 " + RELAXED[0] + "bra END;\nREAD:"
    waited = "@!%q0 bra L;\n" + RELAXED[1] + GPU + "L: " + SYNC + "@%q1 " + LOAD + END
    return SETUP.format(writer=0) + body + waited


# Each block writes its word and waits until all have; then it reads the word of the next.
GRID_BARRIER = SETUP.format(writer=0) + (
    "@!%q0 bra END; mad.wide.u32 %x1, %r10, 4, %p0; st.global.u32 [%x1], %r10;\n{fence}"
    "red.global.add.u32 [%p1], 1;\nP: ld.volatile.global.u32 %r31, [%p1];\n"
    "setp.lt.u32 %q9, %r31, %r11; @%q9 bra P;\n" + GPU + "add.u32 %r12, %r10, 1; "
    "rem.u32 %r12, %r12, %r11; mad.wide.u32 %x1, %r12, 4, %p0; ld.global.u32 %r30, [%x1];\n" + END
)
OTHER_FLAG = (RELEASED[0], RELEASED[1].replace("[%p1]", "[%p1+64]").replace("@!%q9", "@%q9"))

RULES: list[tuple[str, str, Kinds]] = [
    ("volatile flags with fences", hand_over(VOLATILE, GPU, "membar.gl;\n"), ()),
    ("no fence before the flag", hand_over(VOLATILE, "", GPU), (RAW,)),
    ("none behind it", hand_over(VOLATILE, GPU, ""), (RAW,)),
    ("one for the block", hand_over(VOLATILE, GPU, "membar.cta;\n"), (RAW,)),
    ("relaxed flags", hand_over(RELAXED, GPU, "fence.sc.gpu;\n"), ()),
    ("a relaxed flag alone", hand_over(RELAXED, GPU), (RAW,)),
    ("atomic flags", hand_over(ATOMIC, GPU, GPU), ()),
    ("atomic updates alone order nothing", hand_over(ATOMIC, GPU), (RAW,)),
    ("release and acquire", hand_over(RELEASED), ()),
    ("atomic ones", hand_over(ADDED), ()),
    ("release alone", hand_over((RELEASED[0], RELAXED[1])), (RAW,)),
    ("acquire alone", hand_over((RELAXED[0], RELEASED[1])), (RAW,)),
    ("within the block", hand_over(BLOCK, "", "@!%q0 membar.gl;\n"), (RAW,)),
    ("another flag", hand_over(OTHER_FLAG), (RAW,)),
    ("a fence too early", hand_over(RELAXED, "", GPU).replace(STORE, GPU + STORE), (RAW,)),
    ("for a block before", hand_over(RELAXED, GPU, GPU, by=1), ()),
    ("for threads through barriers", through_threads(), ()),
    ("for all blocks", GRID_BARRIER.format(fence=GPU), ()),
    ("not without the fence", GRID_BARRIER.format(fence=""), (RAW,)),
    ("volatile loads beside atomic updates", SETUP.format(writer=0) + "@%q0 red.global.add.u32 "
     "[%p1], 1; @%q0 ld.volatile.global.u32 %r31, [%p1];", ()),
    ("a fence elsewhere", SETUP.format(writer=0) + GPU + "@%q0 st.global.u32 [%p0], %r10;", (WAW,)),
    ("equal values of two blocks", "setp.eq.u32 %q0, %t, 0; @%q0 st.global.u32 [%p0], 7;", (WAW,)),
    ("equal values of one", "@%q0 bra END; setp.lt.u32 %q1, %t, 2; mov.u32 %r10, %ctaid.x;\n"
     "mad.wide.u32 %x1, %r10, 4, %p0; @%q1 st.global.u32 [%x1], 7;" + END, ()),
]  # fmt: skip


def launch(body: str, options: LaunchOptions | None = None, grid: int = 2) -> LaunchReport:
    arrays = [aligned(1024, np.uint32), aligned(1024, np.uint32)]
    return run(
        compile_kernel(ptx_kernel(body), "kernel"), arrays, block=64, grid=grid, options=options
    )


@pytest.mark.parametrize(("body", "kinds"), [rule[1:] for rule in RULES], ids=[r[0] for r in RULES])
def test_a_rule(body: str, kinds: Kinds) -> None:
    check_kinds(lambda options: launch(body, options), kinds)


def test_a_flag_within_a_block() -> None:
    """Of a thread that spins before the one that sets it runs, in either order of the threads."""
    for writer, reader in (("%q0", "%q1"), ("%q1", "%q0")):
        body = SETUP.format(writer=0) + f"@{writer} bra WRITE; @!{reader} bra END;\n"
        body += RELEASED[1] + LOAD + "bra END;\nWRITE: " + STORE + RELEASED[0] + END
        for options in schedules(seed=2):
            launch(body, options, grid=1)


DRAW = """mov.u32 %r10, %ctaid.x; setp.eq.u32 %q0, %t, 0; @!%q0 bra END;
D: atom.global.add.u32 %r1, [%p1], 1; setp.ge.u32 %q1, %r1, 12; @%q1 bra END;
mad.wide.u32 %x1, %r1, 4, %p0; add.u32 %r2, %r10, 1; st.global.u32 [%x1], %r2; bra D;
END:
"""


def test_blocks_with_atomic_updates_take_turns() -> None:
    drawn = set()
    for options in schedules(seed=1):
        for races in ("error", "off"):
            tiles, counter = aligned(12, np.uint32), aligned(16, np.uint32)
            options = LaunchOptions(lane_order=options.lane_order, seed=1, races=races)
            report = run(
                compile_kernel(ptx_kernel(DRAW), "kernel"), [tiles, counter], grid=3,
                options=options,
            )  # fmt: skip
            assert report.workers == 1 and set(tiles) == {1, 2, 3}
            drawn.add(tuple(tiles))
    assert len(drawn) == 3  # as many as there are schedules


def test_more_blocks_than_take_turns_at_a_time() -> None:
    report = launch(DRAW.replace("12", "200"), grid=100)
    assert report.blocks == 100


def test_a_failure_ends_the_launch() -> None:
    """Block 0 waits for what block 1 does not come to."""
    body = hand_over(RELEASED, by=1).replace(STORE, "bar.sync 1, 64;\n")
    with pytest.raises(DivergentCollectiveError) as caught:
        launch(body)
    assert caught.value.location.block == (1, 0, 0)
