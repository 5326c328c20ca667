"""What the blocks of a cluster may not do to each other, and what they learn: one small kernel for
each."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import (
    DeadlockError,
    DivergentCollectiveError,
    InvalidLaunchError,
    InvalidOperandError,
    KernelError,
    LaunchOptions,
    LaunchReport,
    MbarrierError,
    MisalignedAccessError,
    OutOfBoundsError,
    UnsupportedPtxError,
    compile_kernel,
    memory_range_of,
    schedules,
)

from ..race_kinds import UNWRITTEN, Kinds, check_kinds
from ..support import ptx_kernel

SMEM = ".shared .align 16 .b8 words[64]; .shared .align 8 .b8 bars[64];"
# Thread 0 is %q0. %r20 has the words, %r21 the barrier; %r23 is the rank of the next block, %r10
# and %r11 are what words and barrier are there. %x9 goes to the next block.
SETUP = """mov.u32 %r20, words; mov.u32 %r21, bars; setp.eq.u32 %q0, %t, 0;
mov.u32 %r22, %cluster_ctarank; mov.u32 %r24, %cluster_nctarank; add.u32 %r23, %r22, 1;
setp.eq.u32 %q1, %r23, %r24; @%q1 mov.u32 %r23, 0;
mapa.shared::cluster.u32 %r10, %r20, %r23; mapa.shared::cluster.u32 %r11, %r21, %r23;
mov.u32 %r25, %clusterid.x; mov.b64 %x9, {%r22, %r25};
"""
INIT = "@%q0 mbarrier.init.shared::cta.b64 [%r21], 1;\n"
FENCE = "@%q0 fence.mbarrier_init.release.cluster;\n"
EXPECT = "@%q0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 8;\n"
ARRIVE = "barrier.cluster.arrive.relaxed.aligned;\n"
AWAIT = "barrier.cluster.wait.acquire.aligned;\n"
SEND = ("@%q0 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 "
        "[%r10], %x9, [%r11];\n")  # fmt: skip
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %q9, [%r21], 0; @!%q9 bra W;\n"
READ = """ld.shared.v2.u32 {%r30, %r31}, [%r20]; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 64, %t;
mul.wide.u32 %x1, %r2, 8; add.u64 %x1, %x1, %p0; st.global.v2.u32 [%x1], {%r30, %r31};
"""
# Clusters that talk to each other take turns.
TURNS = "red.global.add.u32 [%p0], 0;\n"
READY = INIT + FENCE + EXPECT + ARRIVE + AWAIT
GOOD = READY + SEND + WAIT + READ


def launch(
    body: str, options: LaunchOptions | None = None, cluster: int = 2, blocks: int = 6
) -> tuple[Any, LaunchReport]:
    out = np.zeros((blocks, 64, 2), np.uint32)
    kernel = compile_kernel(ptx_kernel(SETUP + body, parameters=1, globals_=SMEM), "kernel")
    report = kernel.launch(
        (blocks, 1, 1), (64, 1, 1), 0, [struct.pack("<Q", out.ctypes.data)],
        [memory_range_of(out, "out", True)], cluster=cluster, options=options,
    )  # fmt: skip
    return out, report


@pytest.mark.parametrize("cluster", [1, 2, 3, 6])
@pytest.mark.parametrize("early", [False, True], ids=["late", "early"])
def test_each_block_hears_of_the_one_before(cluster: int, early: bool) -> None:
    for options in schedules(seed=5, options=LaunchOptions(early_loads=early)):
        out, report = launch(GOOD, options, cluster)
        for block in range(6):
            rank = block % cluster
            assert (out[block] == [(rank - 1) % cluster, block // cluster]).all()
        assert report.collectives["barrier.cluster"] == 6 // cluster
        assert report.bulk_stores == report.blocks == 6


def test_words_of_16_bytes() -> None:
    word = SEND.replace(".b64 [%r10], %x9", ".v4.b32 [%r10], {%r22, %r25, %t, %t}")
    out, _ = launch(READY.replace("], 8;", "], 16;") + word + WAIT + READ)
    assert (out[:, 0, 0] == [1, 0, 1, 0, 1, 0]).all()


ERRORS: list[tuple[str, str, type[KernelError], str]] = [
    ("no wait of the cluster", GOOD.replace(ARRIVE + AWAIT, ""), MbarrierError,
     "no mbarrier is initialised at byte 64"),
    ("no arrival", GOOD.replace(ARRIVE, ""), DivergentCollectiveError, "has not arrived"),
    ("two arrivals", GOOD.replace(ARRIVE, ARRIVE + ARRIVE), DivergentCollectiveError,
     "has not waited since it arrived last"),
    ("an arrival of half a warp", READY + "setp.ge.u32 %q3, %lane, 16;"
     "setp.lt.and.u32 %q2, %t, 32, %q3; @%q2 bra END;" + ARRIVE + AWAIT + "END:",
     DivergentCollectiveError,
     "lanes 0x.* of its warp have exited|which all lanes must execute"),
    ("one that has lost a lane", READY + "setp.eq.u32 %q2, %lane, 3; @%q2 bra END;"
     "barrier.sync 0;" + ARRIVE + AWAIT + "END:", DivergentCollectiveError, "have exited"),
    ("half a warp at each of two", READY + "setp.ge.u32 %q2, %lane, 16; @%q2 bra TWO;" + ARRIVE
     + "bra END; TWO:" + ARRIVE + "END:" + AWAIT, DivergentCollectiveError,
     "lane .* of its warp is at another, at PTX line"),
    ("no such block", GOOD + "mov.u32 %r24, 2; mapa.shared::cluster.u32 %r1, %r20, %r24;",
     InvalidOperandError, "mapa of block 2 in a cluster of 2"),
    ("a barrier elsewhere", GOOD.replace("[%r11]", "[%r21]"), InvalidOperandError,
     "both must lie in one block of the cluster"),
    ("no such address", GOOD.replace(SEND, "mov.u32 %r10, 0x900000; mov.u32 %r11, %r10;" + SEND),
     InvalidOperandError, "both must lie in one block of the cluster"),
    ("beyond the memory", GOOD.replace("[%r10]", "[%r10+4096]"), OutOfBoundsError,
     "byte 4096 of 128 bytes"),
    ("over a barrier", GOOD.replace("[%r10]", "[%r11]"), MbarrierError, "lies at 64"),
    ("between words", GOOD.replace("[%r10]", "[%r10+4]"), MisalignedAccessError, "of 8 bytes"),
    ("a barrier that is none", GOOD.replace("[%r11]", "[%r11+8]"), MbarrierError,
     "no mbarrier is initialised at byte 72"),
    ("no wait for the word", READY + SEND, KernelError,
     "1 of the words stored to it|cluster, which has ended"),
    ("a block that has ended", READY + "setp.ne.u32 %q2, %r22, 0; @%q2 bra END;" + ARRIVE + AWAIT
     + SEND + WAIT + "END:", OutOfBoundsError, "of block 1 of the cluster, which has ended"),
    ("a word too many is announced", GOOD.replace("], 8;", "], 16;"), DeadlockError,
     "8 bytes announced that no copy in flight brings"),
    ("no word is sent", READY + WAIT, DeadlockError, "for which 64 threads wait"),
    ("a block that does not come", "setp.ne.u32 %q2, %r22, 0; @!%q2 bra GO; bar.sync 1, 96; GO:"
     + GOOD, DeadlockError, "no thread can run"),
]  # fmt: skip


@pytest.mark.parametrize("turns", ["", TURNS], ids=["alone", "in turns"])
@pytest.mark.parametrize(("body", "error", "words"), [e[1:] for e in ERRORS],
                         ids=[e[0] for e in ERRORS])  # fmt: skip
def test_rules(body: str, error: type[KernelError], words: str, turns: str) -> None:
    for options in schedules(seed=3, options=LaunchOptions(races="off")):
        with pytest.raises(error, match=words.replace("(", r"\(")):
            launch(turns + body, options)


UNSEEN = "mbarrier used before its initialisation is seen"
WRITE = "@%q0 st.shared.b64 [%r20], %x9;\n"
RACES: list[tuple[str, str, Kinds]] = [
    ("nothing missing", GOOD, ()),
    ("initialisations are not shown", GOOD.replace(FENCE, ""), (UNSEEN,)),
    ("shown by another thread", GOOD.replace("@%q0 fence", "@!%q0 fence"), (UNSEEN,)),
    ("shown too late", READY.replace(FENCE, "") + FENCE + SEND + WAIT, (UNSEEN,)),
    ("twice to one word", READY.replace("], 8;", "], 16;") + SEND + SEND + WAIT,
     ("write to a bulk load not waited for",)),
    ("a word that was read before", READY + WRITE + "bar.sync 0;" + ARRIVE + AWAIT + SEND + WAIT,
     ("write-after-write",)),
    ("another word", GOOD.replace("ld.shared.v2.u32 {%r30, %r31}, [%r20]",
     "ld.shared.v2.u32 {%r30, %r31}, [%r20+16]"), (UNWRITTEN,)),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kinds"), [r[1:] for r in RACES], ids=[r[0] for r in RACES])
def test_races(body: str, kinds: Kinds) -> None:
    check_kinds(lambda options: launch(body, options)[1], kinds)


def test_who_raced_is_named_with_its_block() -> None:
    _, report = launch(GOOD.replace(FENCE, ""), LaunchOptions(races="report"), blocks=2)
    stores = [race for race in report.races if "st.async" in str(race)]
    assert stores and {race.second.block[0] for race in stores} <= {0, 1}


@pytest.mark.parametrize("instruction", [
    "barrier.cluster.arrive.acquire.aligned", "barrier.cluster.wait.relaxed.aligned",
    "mapa.u64 %x1, %x2, 1", "st.async.shared::cluster.b64 [%r10], %x9, [%r11]",
])  # fmt: skip
def test_what_is_not_followed(instruction: str) -> None:
    with pytest.raises(UnsupportedPtxError):
        launch(f"{instruction};")


@pytest.mark.parametrize(("cluster", "blocks"), [(0, 6), (17, 17), (4, 6)])
def test_clusters_that_there_are_not(cluster: int, blocks: int) -> None:
    with pytest.raises(InvalidLaunchError, match=f"clusters of {cluster} in a grid of"):
        launch(GOOD, cluster=cluster, blocks=blocks)


@pytest.mark.parametrize("cluster", [1, 2, 3])
def test_clusters_add_in_global_memory(cluster: int) -> None:
    for options in schedules(seed=7):
        out, _ = launch(READY + SEND + WAIT + "red.global.add.u32 [%p0], 1;", options, cluster)
        assert out[0, 0, 0] == 6 * 64


def test_more_clusters_than_take_turns() -> None:
    out, report = launch(READY + SEND + WAIT + "red.global.add.u32 [%p0], 1;", blocks=54)
    assert out[0, 0, 0] == 54 * 64 and report.collectives["barrier.cluster"] == 27
    out, _ = launch(READY + SEND + WAIT + "red.global.add.u32 [%p0], 1;", cluster=16, blocks=32)
    assert out[0, 0, 0] == 32 * 64
