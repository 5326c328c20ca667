"""Limits of Hopper's units and of what the emulator follows, and instructions that need a whole
warp when a part of it has exited."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from flash_helpers.emulator import (
    DivergentCollectiveError,
    InvalidOperandError,
    KernelError,
    MbarrierError,
    OutOfBoundsError,
    WgmmaError,
    compile_kernel,
    memory_range_of,
    schedules,
)

from ..support import aligned, ptx_kernel
from .test_rules import (
    ARRIVE,
    COMMIT,
    END,
    EXPECT,
    LOAD,
    ONE,
    READY,
    SMEM,
    WAIT_READ,
    launch,
    wait_at,
)
from .test_wgmma_rules import FENCE, FILL, GOOD, WCOMMIT, WDONE, WGMMA, WGMMA_SETUP

FILLED = WGMMA_SETUP.replace("fence.proxy", FILL + "fence.proxy")


def loop(body: str, count: int) -> str:
    """`body` with %r2 from 0 on; %r3 is 8 times that, behind the start of the memory."""
    return (
        f"mov.u32 %r2, 0; mov.u32 %r3, %r20;\nLOOP: {body}\nadd.u32 %r2, %r2, 1; "
        f"add.u32 %r3, %r3, 8; setp.lt.u32 %q9, %r2, {count}; @%q9 bra LOOP;\n"
    )


INIT_MANY = "mbarrier.init.shared::cta.b64 [%r3], 1;"
BYTES = ARRIVE.replace("arrive", "{}").replace("_, [%r21]", "[%r21], 1048576")
STORE_16 = "cp.async.bulk.global.shared::cta.bulk_group [%p1], [%r20], 16;\n" + COMMIT + WAIT_READ

ERRORS: list[tuple[str, str, type[KernelError], str]] = [
    ("too many bytes with an arrival", READY + ONE + EXPECT.replace("4096", "1048576") + END,
     MbarrierError, "1048576 bytes announced"),
    ("too many completed", READY + ONE + BYTES.format("complete_tx.relaxed.cta") + END,
     MbarrierError, "completed that nobody announced"),
    ("too many landed", READY + ONE + loop(LOAD, 257) + wait_at() + END, MbarrierError,
     "more than a million bytes that nobody announced"),
    ("too many barriers", ONE + loop(INIT_MANY, 129) + END, MbarrierError, "more than 128"),
    ("too many that store", STORE_16, InvalidOperandError, "128 in all"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "error", "text"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS]
)
def test_an_error(body: str, error: type[KernelError], text: str) -> None:
    for options in schedules(seed=5):
        with pytest.raises(error) as caught:
            launch(body, options, block=192)
        assert text in caught.value.message


def test_a_barrier_that_goes_while_threads_wait() -> None:
    body = READY + "@!%q1 bra GO;\n" + wait_at() + "bra END;\nGO: setp.eq.u32 %q4, %t, 32;\n"
    body += "@%q4 mbarrier.inval.shared::cta.b64 [%r21];" + END
    with pytest.raises(MbarrierError, match="while threads wait"):
        launch(body)


def test_more_barriers_and_warpgroups_than_are_followed() -> None:
    good = WGMMA_SETUP.replace("setp.eq.u32 %q5", "@!%q0 bra M;\n" + loop(INIT_MANY, 128)
                               + "M: bar.sync 0; setp.eq.u32 %q5")  # fmt: skip
    with pytest.raises(InvalidOperandError, match="128 in all"):
        launch(GOOD, block=128, setup=good)


def test_warps_of_a_group_that_multiply_more_than_others() -> None:
    body = FENCE + WGMMA + "setp.lt.u32 %q4, %t, 96;\n@%q4 bra MORE; bra ON;\nMORE: " + WGMMA
    with pytest.raises(DivergentCollectiveError, match="has executed 2 wgmma, warp 3 of it 1"):
        launch(body + "ON: " + WCOMMIT + WDONE, block=128, setup=FILLED)


def test_a_first_wgmma_without_a_fence() -> None:
    """Of accumulators that nothing has touched: it does not read them."""
    fresh = WGMMA.replace("%f0, %f1, %f2, %f3", "%f20, %f21, %f22, %f23").replace("%q5", "%q6")
    setup = FILLED + "setp.ne.u32 %q6, %t, %t;\n"
    launch(FENCE + fresh + WCOMMIT + WDONE, block=128, setup=setup)
    with pytest.raises(WgmmaError, match=r"no wgmma\.fence precedes the thread's first"):
        launch(fresh + WCOMMIT + WDONE, block=128, setup=setup)


@pytest.mark.parametrize(
    "instruction", [FENCE, WGMMA, WCOMMIT, WDONE, "setmaxnreg.dec.sync.aligned.u32 24;\n"]
)
def test_half_a_warp_has_exited(instruction: str) -> None:
    body = FENCE + "setp.lt.u32 %q2, %lane, 16; @%q2 bra OUT;\n" + instruction + "OUT:\n"
    with pytest.raises(DivergentCollectiveError, match="needs all 32 lanes"):
        launch(body, block=128)


def test_a_copy_across_two_ranges() -> None:
    """One behind the other in memory; each copy but that between them is inside one."""
    memory = aligned(1024, np.uint8)
    body = "mov.u32 %r20, smem; mov.u32 %r21, bars; mov.u32 %r22, 1; setp.eq.u32 %q0, %t, 0;\n"
    body += READY + ONE + EXPECT.replace("4096", "32")
    body += "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
    body += "[%r20], [%p0+{}], 32, [%r21];\n" + wait_at() + END

    def copy(at: int) -> None:
        kernel = compile_kernel(ptx_kernel(body.format(at), 1, globals_=SMEM), "kernel")
        halves = [memory_range_of(memory[:512], "left"), memory_range_of(memory[512:], "right")]
        address = struct.pack("<Q", memory.ctypes.data)
        kernel.launch((1, 1, 1), (32, 1, 1), 0, [address], halves)

    for at in (480, 512):
        copy(at)
    with pytest.raises(OutOfBoundsError, match="across two ranges"):
        copy(496)
