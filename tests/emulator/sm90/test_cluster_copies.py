"""Arrivals at mbarriers of other blocks of a cluster, copies to their shared memory, and what
blocks learn by them and by the cluster's barrier: one small kernel for each rule."""

from __future__ import annotations

import pytest

from flash_helpers.emulator import (
    DeadlockError,
    InvalidLaunchError,
    InvalidOperandError,
    KernelError,
    LaunchOptions,
    MbarrierError,
    OutOfBoundsError,
    PendingAsyncCopyError,
    PtxSyntaxError,
    UnsupportedPtxError,
    compile_kernel,
    schedules,
)

from ..race_kinds import RAW, WAR, Kinds, check_kinds
from ..support import ptx_kernel
from .test_cluster_rules import FENCE, SETUP, SMEM, TURNS, launch

# Block 0 or 1 of a cluster writes 16 bytes at 16 and has them copied to 32 of the other one, whose
# barrier "full" is in %r21, here, and in %r11, there. "Empty" is 8 bytes further. %r12: 32 there.
INIT = (
    "add.u32 %r12, %r10, 32; add.u32 %r13, %r20, 16;"
    "@%q0 mbarrier.init.shared::cta.b64 [%r21], 1;"
    "@%q0 mbarrier.init.shared::cta.b64 [%r21+8], 1;"
) + FENCE
EXPECT = "@%q0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 16;\n"
ARRIVE = "barrier.cluster.arrive.release.aligned;\n"
AWAIT = "barrier.cluster.wait.acquire.aligned;\n"
SYNC = ARRIVE + AWAIT
PUT = "@%q0 st.shared.v2.b64 [%r20+16], {%x9, %x9};\n"
PROXY = "@%q0 fence.proxy.async.shared::cta;\n"
COPY = (
    "@%q0 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
    "[%r12], [%r13], 16, [%r11];\n"
)
FULL = "W: mbarrier.try_wait.parity.shared::cta.b64 %q9, [%r21], 0; @!%q9 bra W;\n"
READ = "ld.shared.v2.u32 {%r30, %r31}, [%r20+32];\n"
RELEASE = "bar.sync 0; @%q0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11+8];\n"
EMPTY = (
    "V: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q9, [%r21+8], 0; @!%q9 bra V;\n"
)
START = INIT + EXPECT + SYNC
UNREAD = PUT + PROXY + COPY + FULL
SEND = UNREAD + READ
GOOD = START + SEND + RELEASE + EMPTY + PUT + SYNC

ERRORS: list[tuple[str, str, type[KernelError], str]] = [
    ("an address of nobody", GOOD.replace("_, [%r11+8]", "_, [%r11+4194312]"), InvalidOperandError,
     "which no block of the cluster has"),
    ("a barrier of nobody", GOOD.replace("_, [%r11+8]", "_, [%r11+16]"), MbarrierError,
     "no mbarrier is initialised at byte 80"),
    ("a rank in this block's window", GOOD.replace("shared::cluster.b64 _", "shared::cta.b64 _"),
     OutOfBoundsError, "of shared memory"),
    ("an arrival after the end", START + "setp.ne.u32 %q2, %r22, 0; @%q2 bra END;" + ARRIVE + AWAIT
     + RELEASE + "END:", OutOfBoundsError, "of block 1 of the cluster, which has ended"),
    ("a copy after the end", START + "setp.ne.u32 %q2, %r22, 0; @%q2 bra END;" + ARRIVE + AWAIT
     + PUT + PROXY + COPY + "END:", OutOfBoundsError, "of block 1 of the cluster, which has ended"),
    ("odd bytes", GOOD.replace(", 16, [%r11]", ", 8, [%r11]"), InvalidOperandError,
     "of 8 bytes between blocks of a cluster"),
    ("no bytes", GOOD.replace(", 16, [%r11]", ", 0, [%r11]"), InvalidOperandError,
     "of 0 bytes between blocks of a cluster"),
    ("a source that ends", START + "setp.ne.u32 %q2, %r22, 0; @!%q2 bra REST;" + PUT + PROXY + COPY
     + "bra END; REST:" + ARRIVE + AWAIT + "END:", PendingAsyncCopyError,
     "a copy of 16 bytes of its shared memory to another block is in flight"),
    ("a copy nobody waits for", START + PUT + PROXY + COPY, PendingAsyncCopyError,
     "copies to it are in flight|to another block is in flight"),
    ("bytes nobody announced", INIT + SYNC + SEND, DeadlockError,
     "16 bytes landed that nobody announced"),
]  # fmt: skip


@pytest.mark.parametrize("turns", ["", TURNS], ids=["alone", "in turns"])
@pytest.mark.parametrize(("body", "error", "words"), [e[1:] for e in ERRORS],
                         ids=[e[0] for e in ERRORS])  # fmt: skip
def test_rules(body: str, error: type[KernelError], words: str, turns: str) -> None:
    for options in schedules(seed=3, options=LaunchOptions(races="off")):
        with pytest.raises(error, match=words):
            launch(turns + body, options, blocks=2)


SOURCE = ("write to the source of a copy to another block",)
ENDED = ("use of a block's shared memory that may have ended",)
UNFENCED = ("write not fenced for an asynchronous unit",)
UNWAITED = ("write to a bulk load not waited for",)
AGAIN = "bar.sync 0; @%q0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 16;\n" + COPY
AGAIN += FULL.replace("W", "Z").replace("], 0;", "], 1;")
THERE = PUT.replace("+16]", "+32]")
# Thread 0 of a block has a word of global memory, which thread 32 of the next reads.
OWN = (
    "mad.lo.u32 %r1, %r25, %r24, %r22; mul.wide.u32 %x1, %r1, 4; add.u64 %x1, %x1, %p0;"
    "@%q0 st.global.u32 [%x1], %t;\n"
)
NEXT = (
    "mad.lo.u32 %r1, %r25, %r24, %r23; mul.wide.u32 %x2, %r1, 4; add.u64 %x2, %x2, %p0;"
    "setp.eq.u32 %q3, %t, 32;"
    "@%q3 ld.global.u32 %r1, [%x2];\n"
)
RACES: list[tuple[str, str, Kinds]] = [
    ("nothing missing", GOOD, ()),
    ("no release", GOOD.replace(RELEASE + EMPTY, ""), SOURCE),
    ("a release to the block", GOOD.replace("release.cluster.sh", "release.cta.sh"), ()),
    ("a release to whom none is named", GOOD.replace("release.cluster.sh", "sh"), ()),
    ("which covers no reads", START + SEND + RELEASE.replace("release.cluster.sh", "sh") + EMPTY
     + AGAIN + SYNC, (WAR,)),
    ("nor writes", START + OWN + RELEASE.replace("release.cluster.sh", "sh") + EMPTY + NEXT + SYNC,
     (RAW,)),
    ("nor copies that it has not waited for", START + PUT + PROXY + COPY
     + RELEASE.replace("release.cluster.sh", "sh") + EMPTY + PUT + FULL + SYNC, SOURCE),
    ("a relaxed arrival", GOOD.replace("release.cluster.sh", "relaxed.cluster.sh"), SOURCE),
    ("a wait within the block", GOOD.replace("acquire.cluster.", "acquire.cta."), ()),
    ("which learns of no reads", START + SEND + RELEASE + EMPTY.replace("acquire.cluster.", "")
     + AGAIN + SYNC, (WAR,)),
    ("a relaxed wait", GOOD.replace("acquire.cluster.", "relaxed.cluster."), SOURCE),
    ("released before it has come", START + PUT + PROXY + COPY + RELEASE + EMPTY + PUT + FULL
     + SYNC, SOURCE),
    ("the barrier in place of the release", START + SEND + SYNC + PUT + SYNC, ()),
    ("a relaxed barrier in its place", START + SEND + SYNC.replace("release", "relaxed") + PUT
     + SYNC, SOURCE),
    ("a second copy there", START + SEND + RELEASE + EMPTY + AGAIN + SYNC, ()),
    ("one before the first is known to be over", START + UNREAD + AGAIN + SYNC, UNWAITED),
    ("no fence", GOOD.replace(PROXY, "", 1), UNFENCED),
    ("its place written before", INIT + EXPECT + THERE + PROXY + SYNC + SEND + SYNC, ()),
    ("and not fenced", INIT + EXPECT + THERE + SYNC + SEND + SYNC, UNFENCED),
    ("and not known", INIT + EXPECT + THERE + PROXY + SYNC.replace("release", "relaxed") + UNREAD
     + SYNC, ("write-after-write",)),
    ("an end that others do not know", START + SEND + SYNC.replace("release", "relaxed"), ENDED),
    ("an arrival before an end", START + RELEASE + SYNC.replace("release", "relaxed"), ENDED),
    ("an arrival that is heard of", START + RELEASE + EMPTY, ()),
    ("an arrival that the barrier tells of", START + RELEASE + SYNC, ()),
    ("global memory behind the barrier", OWN + SYNC + NEXT, ()),
    ("behind a relaxed one", OWN + SYNC.replace("release", "relaxed") + NEXT, (RAW,)),
    ("behind an arrival", START + OWN + RELEASE + EMPTY + NEXT + SYNC, ()),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kinds"), [r[1:] for r in RACES], ids=[r[0] for r in RACES])
def test_races(body: str, kinds: Kinds) -> None:
    check_kinds(lambda options: launch(body, options, blocks=4)[1], kinds)


# Block 0 writes; behind the barrier block 1, of the same cluster, raises a flag, for which block 2
# waits, so that block 3 reads behind theirs.
PASSED_ON = (
    "mov.u32 %r2, %ctaid.x; setp.eq.and.u32 %q4, %r2, 0, %q0; setp.eq.and.u32 %q5, %r2, 1, %q0;"
    "setp.eq.and.u32 %q6, %r2, 2, %q0; setp.eq.and.u32 %q7, %r2, 3, %q0;"
    "@%q4 st.global.u32 [%p0], 5;"
    "setp.lt.u32 %q8, %r2, 2; @!%q8 bra SECOND;"
    f"{SYNC} @%q5 st.release.gpu.global.u32 [%p0+64], 1; bra DONE;"
    "SECOND: @!%q6 bra GO; SPIN: ld.acquire.gpu.global.u32 %r3, [%p0+64];"
    "setp.eq.u32 %q9, %r3, 0; @%q9 bra SPIN;"
    f"GO: {SYNC} @%q7 ld.global.u32 %r4, [%p0]; @%q7 st.global.u32 [%p0+128], %r4;"
    "DONE:"
)


@pytest.mark.parametrize(
    ("body", "kinds"),
    [(PASSED_ON, ()), (PASSED_ON.replace("release.aligned", "relaxed.aligned", 1), (RAW,)),
     (PASSED_ON.replace("release.aligned", "relaxed.aligned"), (RAW,)),
     (PASSED_ON.replace("st.release.gpu", "st.relaxed.gpu"), (RAW,))],
    ids=["ordered", "relaxed", "all relaxed", "no fence"],
)  # fmt: skip
def test_flags_pass_on_what_a_cluster_knows(body: str, kinds: Kinds) -> None:
    check_kinds(lambda options: launch(body, options, blocks=4)[1], kinds)
    out, _ = launch(body, LaunchOptions(races="off"), blocks=4)
    assert out.flat[32] == 5


def test_both_blocks_are_named() -> None:
    _, report = launch(GOOD.replace(PROXY, PROXY + "bar.sync 0;"), blocks=2)
    assert not report.races
    body = START + UNREAD + AGAIN + SYNC
    _, report = launch(body, LaunchOptions(races="report"), blocks=2)
    (race,) = report.races
    assert race.first and race.first.block == race.second.block  # one sender, of two copies
    assert "mbarrier" in race.remedy()
    _, report = launch(INIT + EXPECT + THERE + SYNC.replace("release", "relaxed") + UNREAD + SYNC,
                       LaunchOptions(races="report"), blocks=2)  # fmt: skip
    (race,) = report.races
    assert race.first and race.first.block != race.second.block
    assert "arrive.release.cluster" in race.remedy()


@pytest.mark.parametrize("instruction", [
    "cp.async.bulk.shared::cluster.shared::cta.bulk_group [%r12], [%r13], 16",
    "cp.async.bulk.shared::cta.shared::cta.mbarrier::complete_tx::bytes [%r12], [%r13], 16, [%r11]",
])  # fmt: skip
def test_what_is_not_followed(instruction: str) -> None:
    with pytest.raises(UnsupportedPtxError):
        launch(f"{instruction};")


def _declared(size: str) -> str:
    ptx = ptx_kernel(SETUP, parameters=1, globals_=SMEM)
    return ptx.replace(")\n{", f")\n.explicitcluster\n.reqnctapercluster {size}\n{{", 1)


@pytest.mark.parametrize("size", ["4", "4, 1", "4, 1, 1"])
def test_a_declared_cluster(size: str) -> None:
    kernel = compile_kernel(_declared(size), "kernel")
    for cluster in (None, 4):
        for blocks in (4, 8):
            report = kernel.launch((blocks, 1, 1), (32, 1, 1), 0, [bytes(8)], [], cluster=cluster)
            assert report.blocks == blocks
    with pytest.raises(InvalidLaunchError, match="clusters of 4 in a grid of"):
        kernel.launch((6, 1, 1), (32, 1, 1), 0, [bytes(8)], [])
    with pytest.raises(InvalidLaunchError, match="the kernel declares clusters of 4"):
        kernel.launch((4, 1, 1), (32, 1, 1), 0, [bytes(8)], [], cluster=2)


def test_clusters_extend_along_x() -> None:
    with pytest.raises(PtxSyntaxError, match="reqnctapercluster 2, 2, 1: clusters extend along x"):
        compile_kernel(_declared("2, 2, 1"), "kernel")
