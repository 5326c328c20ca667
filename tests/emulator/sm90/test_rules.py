"""What Hopper's instructions may not do, and what orders accesses: one small kernel for each."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import (
    DeadlockError,
    DivergentCollectiveError,
    EarlyAccessError,
    InvalidOperandError,
    KernelError,
    LaunchOptions,
    LaunchReport,
    MbarrierError,
    MisalignedAccessError,
    OutOfBoundsError,
    PendingAsyncCopyError,
    ReadOnlyMemoryError,
    TensorMapError,
    compile_kernel,
    memory_range_of,
    pack_tensor_map,
    schedules,
)

from ..race_kinds import RAW, UNWRITTEN, WAR, WAW, Kinds, check_kinds
from ..support import aligned, ptx_kernel

SMEM = ".shared .align 1024 .b8 smem[8192]; .shared .align 8 .b8 bars[256];"
# Thread 0 is %q0, warp 0 %q1. %r20 is the memory, %r21 the first barrier (of %r22 arrivals), %r10
# the thread's own word. %x1 and %x2 are tensor maps of the inputs and the output.
SETUP = """mov.u32 %r20, smem; mov.u32 %r21, bars; mov.u32 %r22, 1; shl.b32 %r0, %t, 2;
add.u32 %r10, %r20, %r0; setp.eq.u32 %q0, %t, 0; setp.lt.u32 %q1, %t, 32;
add.u64 %x1, %p2, 0; add.u64 %x2, %p2, 128;
"""
INIT = (
    "@%q0 mbarrier.init.shared::cta.b64 [%r21], %r22; @%q0 fence.mbarrier_init.release.cluster;\n"
)
SYNC = "bar.sync 0;\n"
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%r21];\n"
WAIT = """W$: mbarrier.try_wait.parity.shared::cta.b64 %q9, [%r21], 0; @!%q9 bra W$;\n"""
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 4096;\n"
LOAD = ("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%r20], [%x1, {0, 0}], [%r21];\n")  # fmt: skip
STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%x2, {0, 0}], [%r20];\n"
COMMIT, WAIT_READ = "cp.async.bulk.commit_group;\n", "cp.async.bulk.wait_group.read 0;\n"
PROXY = "fence.proxy.async.shared::cta;\n"
ONE = "@!%q0 bra END;\n"
END = "END: bar.sync 0;\n"


def wait_at(number: int = 0) -> str:
    return WAIT.replace("$", str(number))


def launch(
    body: str,
    options: LaunchOptions | None = None,
    block: int = 64,
    setup: str = SETUP,
    rows_before: int = 0,
) -> tuple[Any, LaunchReport]:
    """`rows_before`: of the maps, which begin that far before their arrays."""
    source, out = aligned((32, 64), np.uint16), aligned((32, 64), np.uint16)
    source[:] = np.arange(source.size).reshape(source.shape)
    maps = aligned(256, np.uint8)
    packed = [
        pack_tensor_map(
            array.ctypes.data - 128 * rows_before, 2, (64, 32), (128,), (64, 32), swizzle=128
        )
        for array in (source, out)
    ]
    maps[:] = np.frombuffer(b"".join(packed), np.uint8)
    arrays = {"source": source, "out": out, "maps": maps}
    kernel = compile_kernel(ptx_kernel(setup + body, parameters=3, globals_=SMEM), "kernel")
    report = kernel.launch(
        (1, 1, 1),
        (block, 1, 1),
        0,
        [struct.pack("<Q", array.ctypes.data) for array in arrays.values()],
        [memory_range_of(array, name, name == "out") for name, array in arrays.items()],
        options=options,
    )
    return out, report


READY = INIT + SYNC
LOADED = READY + "@!%q0 bra L0;\n" + EXPECT + LOAD + "L0:\n" + wait_at()
STORED = "st.shared.u32 [%r10], %t;\n"
READ_OTHER = "xor.b32 %r1, %r10, 128; ld.shared.u32 %r30, [%r1];\n"
UNALIGNED = LOAD.replace("[%r20]", "[%r20+16]")

ERRORS: list[tuple[str, str, type[KernelError], str]] = [
    ("an early load", "ld.global.u32 %r30, [%p0]; griddepcontrol.wait;", EarlyAccessError,
     "global read before griddepcontrol.wait"),
    ("an early copy", READY + ONE + EXPECT + LOAD + END + "griddepcontrol.wait;", EarlyAccessError,
     "global read before griddepcontrol.wait"),
    ("another thread waits", READY + "@!%q0 bra L0; griddepcontrol.wait; L0:" + SYNC
     + "ld.global.u32 %r30, [%p0];", EarlyAccessError, "global read before griddepcontrol.wait"),
    ("no barrier there", ARRIVE, MbarrierError, "no mbarrier is initialised at byte 8192"),
    ("no arrivals", "mov.u32 %r22, 0;" + INIT, MbarrierError, "0 arrivals: 1 to 1048575"),
    ("initialised twice", INIT + INIT, MbarrierError, "initialised already at byte 8192"),
    ("one arrival too many", READY + "@!%q0 bra END;" + EXPECT + ARRIVE + END, MbarrierError,
     "waits for 0 more of 1 in its phase 0"),
    ("no such parity", READY + "mbarrier.try_wait.parity.shared::cta.b64 %q9, [%r21], 2;",
     MbarrierError, "phase parity 2"),
    ("a store to a barrier", READY + "st.shared.u32 [%r21], %t;", MbarrierError, "lies"),
    ("misplaced", "mbarrier.init.shared::cta.b64 [%r21+4], 1;", MisalignedAccessError,
     "of 8 bytes"),
    ("invalidated", READY + ONE + "mbarrier.inval.shared::cta.b64 [%r21];" + ARRIVE + END,
     MbarrierError, "no mbarrier is initialised"),
    ("too many bytes", READY + ONE + "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r21], "
     "1048576;" + END, MbarrierError, "1048576 bytes announced"),
    ("nobody arrives", READY + wait_at(), DeadlockError,
     "mbarrier 0x2000 (of PTX line 17), for which 64 threads wait: phase 0 has had 0 of 1"),
    ("bytes that never come", READY + ONE + EXPECT + "END:" + wait_at(), DeadlockError,
     "4096 bytes announced that no copy in flight brings"),
    ("bytes that nobody announced", READY + ONE + ARRIVE.replace("arrive", "expect_tx.relaxed.cta")
     .replace("_, [%r21]", "[%r21], 16") + ARRIVE + LOAD + "END:" + wait_at(), DeadlockError,
     "4080 bytes landed that nobody announced"),
    ("destination of a load", READY + ONE + EXPECT + UNALIGNED + END, MisalignedAccessError,
     "not a multiple of 128"),
    ("a load beyond the memory", READY + ONE + EXPECT + LOAD.replace("[%r20]", "[%r20+4992]") + END,
     OutOfBoundsError, "bulk copy of 4096 bytes at byte 4992"),
    ("a load over a barrier", READY + ONE + EXPECT + LOAD.replace("[%r20]", "[%r20+4224]") + END,
     MbarrierError, "where the mbarrier of"),
    ("no tensor map", READY + ONE + EXPECT + "add.u64 %x1, %p0, 0;" + LOAD + END, TensorMapError,
     "are no tensor map of the emulator: pack_tensor_map()"),
    ("another rank", READY + ONE + EXPECT + LOAD.replace("2d", "3d").replace("0, 0", "0, 0, 0")
     + END, TensorMapError, "3 coordinates, its tensor map 2 dimensions"),
    ("a box between 16 bytes", READY + ONE + EXPECT + LOAD.replace("0, 0", "4, 0") + END,
     InvalidOperandError, "must begin at multiples of 16 bytes"),
    ("a stored box between 16 bytes", SYNC + ONE + STORE.replace("0, 0", "-9, 0") + COMMIT
     + WAIT_READ + END, InvalidOperandError, "innermost coordinate -9"),
    ("a store before the start", SYNC + ONE + STORE.replace("0, 0", "0, -5") + COMMIT
     + WAIT_READ + END, InvalidOperandError, "coordinate -5 of dimension 1"),
    ("a store to the inputs", SYNC + ONE + STORE.replace("%x2", "%x1") + COMMIT + WAIT_READ + END,
     ReadOnlyMemoryError, "source"),
    ("plain bytes", READY + ONE + EXPECT + "cp.async.bulk.shared::cluster.global.mbarrier::"
     "complete_tx::bytes [%r20], [%p0], 24, [%r21];" + END, InvalidOperandError, "of 24 bytes"),
    ("a store that nobody waits for", ONE + STORE + COMMIT + END, PendingAsyncCopyError,
     "1 groups of its bulk stores may still read shared memory"),
    ("a store that is not committed", ONE + STORE + WAIT_READ + END, PendingAsyncCopyError,
     "one of them not committed"),
    ("registers", "setmaxnreg.dec.sync.aligned.u32 36;", InvalidOperandError, "multiples of 8"),
    ("decreased upwards", "setmaxnreg.dec.sync.aligned.u32 40; setmaxnreg.dec.sync.aligned.u32 48;",
     InvalidOperandError, "setmaxnreg.dec to 48 registers, of 40"),
    ("a half warp stores matrices", "setp.lt.u32 %q2, %lane, 16; @%q2 bra END;"
     "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r20], {%t};\nEND:", DivergentCollectiveError,
     "stmatrix"),
    ("a barrier left over", READY + "@%q1 bar.arrive 3, 64;", DivergentCollectiveError,
     "barrier 3 has had 32 of 64 arrivals"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "error", "text"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS]
)
def test_an_error(body: str, error: type[KernelError], text: str) -> None:
    for options in schedules(seed=5):
        with pytest.raises(error) as caught:
            launch(body, options)
        assert text in caught.value.message


def test_a_kernel_that_waits_for_those_before_it() -> None:
    for options in schedules(seed=5):
        launch("griddepcontrol.launch_dependents; griddepcontrol.wait;" + LOADED, options)
        launch("griddepcontrol.launch_dependents;" + LOADED, options)  # it does not begin early


@pytest.mark.parametrize(("rows_before", "row"), [(0, 0), (0, 16), (8, 16)])
def test_a_box_partly_outside_of_a_map_that_begins_before_its_memory(
    rows_before: int, row: int
) -> None:
    """For what lies outside, the first address is accessed."""
    load = LOADED.replace("{0, 0}", f"{{0, {row}}}")
    if rows_before == 0:
        launch(load)
        return
    with pytest.raises(OutOfBoundsError, match="1 bytes"):
        launch(load, rows_before=rows_before)


def test_a_load_that_nobody_waits_for() -> None:
    with pytest.raises(PendingAsyncCopyError, match="1 of its bulk loads are in flight"):
        launch(READY + ONE + EXPECT + LOAD + END)


def test_registers_that_are_never_given_up() -> None:
    body = "setp.lt.u32 %q2, %t, 128; @%q2 bra GIVE; setmaxnreg.inc.sync.aligned.u32 240; bra END;"
    give = "GIVE: setmaxnreg.dec.sync.aligned.u32 {};\n" + END
    launch(body + give.format(24), block=384)
    with pytest.raises(DeadlockError, match=r"wait at setmaxnreg \(registers 0x900\)"):
        launch(body + give.format(160), block=384)


LOAD_UNSEEN, OVER_LOAD = "read of a bulk load not waited for", "write to a bulk load not waited for"
OVER_STORE = "write to the source of a bulk store in flight"
UNFENCED = "write not fenced for an asynchronous unit"
UNSEEN, NO_FENCE = (
    "mbarrier used before its initialisation is seen",
    "mbarrier used by a bulk load, without a fence after its initialisation",
)
# The whole tile that TMA copies; and one thread's word of it, for a race of one kind.
TILE = "".join(f"st.shared.u32 [%r10+{256 * i}], %t;\n" for i in range(16))
FILL = TILE + PROXY + SYNC
LAST = "setp.eq.u32 %q3, %t, 32;\n"
STORED_BY_LAST = LAST + "@%q3 st.shared.u32 [%r20], %t;\n"
READ_BY_LAST = LAST + "@%q3 ld.shared.u32 %r30, [%r20];\n"
UNSEEN_LOAD = READY + "@!%q0 bra L0;\n" + EXPECT + LOAD + wait_at() + "L0:\n"
STORED_TILE = "@!%q0 bra L0;\n" + STORE + COMMIT
# Threads of warp 0 write, those of warp 1 read what the thread 32 before them wrote.
HAND_OVER = "@!%q1 bra READ;\n{write} {arrive}\nbra END;\nREAD: " + wait_at() + READ_OTHER + END
MANY = "mov.u32 %r22, 32;\n" + READY

RACES: list[tuple[str, str, Kinds]] = [
    ("arrivals order", MANY + HAND_OVER.format(write=STORED, arrive=ARRIVE), ()),
    ("relaxed ones do not",
     MANY + HAND_OVER.format(write=STORED, arrive=ARRIVE.replace("arrive", "arrive.relaxed.cta")),
     (RAW,)),
    ("nor what follows them", FILL + READY + "@!%q1 bra READ;\n" + ARRIVE.replace("mb", "@%q0 mb")
     + "@%q0 st.shared.u32 [%r20], %t; bra END;\nREAD: " + wait_at() + READ_BY_LAST + END, (RAW,)),
    ("loads are seen by those who wait", LOADED + "ld.shared.u32 %r30, [%r10];", ()),
    ("and by those who meet them", READY + "@!%q0 bra END;\n" + EXPECT + LOAD + wait_at() + END
     + "ld.shared.u32 %r30, [%r10];", ()),
    ("not by others", FILL + UNSEEN_LOAD + READ_BY_LAST, (LOAD_UNSEEN, WAR)),
    ("who may not write there", FILL + UNSEEN_LOAD + STORED_BY_LAST, (OVER_LOAD, WAW)),
    ("barriers are seen behind a barrier", INIT + "@!%q1 bra END;" + "@!%q0 bra END;\n" + EXPECT
     + LOAD + "END: bar.sync 0;" + wait_at(), ()),
    ("and fenced for copies", READY.replace("fence.mbarrier_init.release.cluster", "mov.u32 %r1, 0")
     + ONE + EXPECT + LOAD + wait_at() + END, (NO_FENCE,)),
    ("either fence will do",
     READY.replace("fence.mbarrier_init.release.cluster", "fence.proxy.async.shared::cta")
     + ONE + EXPECT + LOAD + wait_at() + END, ()),
    ("what is stored is fenced", FILL + ONE + STORE + COMMIT + WAIT_READ + END, ()),
    ("by each thread", TILE + SYNC + PROXY + ONE + STORE + COMMIT + WAIT_READ + END, (UNFENCED,)),
    ("before the barrier", FILL + STORED_BY_LAST + SYNC + PROXY + ONE + STORE + COMMIT + WAIT_READ
     + END, (UNFENCED,)),
    ("a fence without a barrier", FILL + STORED_BY_LAST + PROXY + ONE + STORE + COMMIT + WAIT_READ
     + END, (OVER_STORE, RAW)),
    ("a store reads all that it stores", STORED + PROXY + SYNC + ONE + STORE + COMMIT + WAIT_READ
     + END, (UNWRITTEN,)),
    ("the source stays until the wait", FILL + STORED_TILE + "L0: bar.sync 0;" + STORED
     + "@%q0 cp.async.bulk.wait_group.read 0;", (OVER_STORE,)),
    ("and then a barrier", FILL + STORED_TILE + WAIT_READ + "L0:" + STORED_BY_LAST,
     (OVER_STORE, RAW)),
    ("as here", FILL + STORED_TILE + WAIT_READ + "L0: bar.sync 0;" + STORED, ()),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kinds"), [rule[1:] for rule in RACES], ids=[r[0] for r in RACES])
def test_a_race(body: str, kinds: Kinds) -> None:
    check_kinds(lambda options: launch(body, options)[1], kinds)


def test_barriers_used_before_they_are_seen() -> None:
    """Whoever comes first; in some orders the barrier does not exist yet."""
    body = INIT + "@%q0 bar.warp.sync 1;" + ARRIVE.replace("mb", "@%q0 mb") + wait_at()
    _, report = launch(body, LaunchOptions(races="report"))
    assert {race.kind for race in report.races} == {UNSEEN}
    with pytest.raises(MbarrierError, match="no mbarrier is initialised"):
        launch(body, LaunchOptions(races="report", lane_order="reverse"))


def test_a_wait_that_polls_lets_others_run() -> None:
    body = (
        READY + "@%q1 bra WORK;\n" + "P: mbarrier.test_wait.parity.shared::cta.b64 %q9, [%r21], 0;"
    )
    body += "@!%q9 bra P; bra END;\nWORK: bar.warp.sync -1; @!%q0 bra END;" + ARRIVE + END
    for options in schedules(seed=1):
        launch(body, options)


def test_a_look_at_a_barrier_is_no_wait_for_it() -> None:
    """try_wait may fail: the thread goes on, and completes the phase itself."""
    body = READY + ONE + "mbarrier.try_wait.parity.shared::cta.b64 %q9, [%r21], 0;"
    body += "@%q9 bra END;" + ARRIVE + wait_at() + END
    for options in schedules(seed=1):
        launch(body, options)


def test_phases_by_state() -> None:
    body = (
        "mov.u32 %r22, 2;" + READY + ONE + "mbarrier.arrive.shared::cta.b64 %x5, [%r21];" + ARRIVE
    )
    body += "S: mbarrier.try_wait.shared::cta.b64 %q9, [%r21], %x5; @!%q9 bra S;"
    body += "mbarrier.arrive.shared::cta.b64 %x6, [%r21]; mbarrier.test_wait.shared::cta.b64 %q9, "
    body += "[%r21], %x5; @!%q9 trap;" + END
    launch(body)
