"""Boxes that a block loads for several of its cluster: one small kernel for each rule."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import (
    DeadlockError,
    InvalidOperandError,
    KernelError,
    LaunchOptions,
    LaunchReport,
    MbarrierError,
    OutOfBoundsError,
    UnsupportedPtxError,
    compile_kernel,
    memory_range_of,
    pack_tensor_map,
    schedules,
)

from ..race_kinds import WAR, Kinds, check_kinds
from ..support import aligned, ptx_kernel
from .test_cluster_copies import EMPTY, FULL, RELEASE, SYNC
from .test_cluster_rules import FENCE, INIT

SMEM = ".shared .align 1024 .b8 words[2048]; .shared .align 8 .b8 bars[64];"
# Thread 0 is %q0, of the cluster's first block %q2. %r20 has the words, %r21 the barrier, %r11 the
# other block's.
SETUP = """mov.u32 %r20, words; mov.u32 %r21, bars; setp.eq.u32 %q0, %t, 0;
mov.u32 %r22, %cluster_ctarank; setp.eq.and.u32 %q2, %r22, 0, %q0; xor.b32 %r23, %r22, 1;
mapa.shared::cluster.u32 %r11, %r21, %r23;
"""
EXPECT = "@%q0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r21], 2048;\n"
LOAD = (
    "@%q2 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    ".multicast::cluster [%r20], [%p0, {0, 0}], [%r21], 3;\n"
)
# Each thread's word, to its block's row.
READ = """shl.b32 %r1, %t, 2; add.u32 %r1, %r1, %r20; ld.shared.u32 %r2, [%r1];
mov.u32 %r3, %ctaid.x; mad.lo.u32 %r3, %r3, 64, %t; mul.wide.u32 %x1, %r3, 4;
add.u64 %x1, %x1, %p1; st.global.u32 [%x1], %r2;
"""
START = INIT + FENCE + EXPECT + SYNC
GOOD = START + LOAD + FULL + READ + SYNC
AGAIN = EXPECT + LOAD + FULL.replace("W", "Z").replace("], 0;", "], 1;")


def launch(body: str, options: LaunchOptions | None = None) -> tuple[Any, LaunchReport]:
    source, out = aligned((16, 64), np.uint16), np.zeros((4, 64), np.uint32)
    source[:] = np.arange(source.size).reshape(source.shape)
    maps = aligned(128, np.uint8)
    maps[:] = np.frombuffer(
        pack_tensor_map(source.ctypes.data, 2, (64, 16), (128,), (64, 16), swizzle=0), np.uint8
    )
    kernel = compile_kernel(ptx_kernel(SETUP + body, parameters=2, globals_=SMEM), "kernel")
    report = kernel.launch(
        (4, 1, 1), (64, 1, 1), 0, [struct.pack("<Q", a.ctypes.data) for a in (maps, out)],
        [memory_range_of(maps, "maps", False), memory_range_of(source, "source", False),
         memory_range_of(out, "out", True)],
        cluster=2, options=options,
    )  # fmt: skip
    return out, report


@pytest.mark.parametrize("early", [False, True], ids=["late", "early"])
def test_both_blocks_have_the_box(early: bool) -> None:
    for options in schedules(seed=5, options=LaunchOptions(early_loads=early)):
        out, report = launch(GOOD, options)
        np.testing.assert_array_equal(out, [np.arange(128, dtype=np.uint16).view(np.uint32)] * 4)
        assert report.bulk_loads == report.blocks == 4


ERRORS: list[tuple[str, str, type[KernelError], str]] = [
    ("nobody", GOOD.replace("], 3;", "], 0;"), InvalidOperandError,
     "multicast to blocks 0x0 of a cluster of 2"),
    ("a block that there is not", GOOD.replace("], 3;", "], 4;"), InvalidOperandError,
     "multicast to blocks 0x4 of a cluster of 2"),
    ("the other one alone", GOOD.replace("], 3;", "], 2;"), DeadlockError,
     "no thread can run"),
    ("no barrier there", GOOD.replace(INIT, INIT.replace("@%q0", "@%q2")).replace(
        EXPECT, EXPECT.replace("@%q0", "@%q2")), MbarrierError, "no mbarrier is initialised"),
    ("a block that has ended", START + "setp.ne.u32 %q3, %r22, 0; @%q3 bra END;" + SYNC + LOAD
     + FULL + "END:", OutOfBoundsError, "a multicast to the shared memory of block 1"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "error", "words"), [e[1:] for e in ERRORS],
                         ids=[e[0] for e in ERRORS])  # fmt: skip
def test_rules(body: str, error: type[KernelError], words: str) -> None:
    for options in schedules(seed=3, options=LaunchOptions(races="off")):
        with pytest.raises(error, match=words):
            launch(body, options)


# With the second barrier, of EMPTY.
BOTH = START.replace(INIT, INIT + INIT.replace("[%r21]", "[%r21+8]"))
TWICE = BOTH + LOAD + FULL + READ + RELEASE + EMPTY + AGAIN + SYNC
RACES: list[tuple[str, str, Kinds]] = [
    ("nothing missing", GOOD, ()),
    ("again behind the barrier", GOOD + AGAIN + SYNC, ()),
    ("again behind a release", TWICE, ()),
    ("to whom none is named", TWICE.replace("release.cluster.sh", "sh"), (WAR,)),
    ("a wait within the block", TWICE.replace("acquire.cluster.", "acquire.cta."), (WAR,)),
    ("nobody reads it", TWICE.replace("release.cluster.sh", "sh").replace(READ, ""), ()),
]


@pytest.mark.parametrize(("body", "kinds"), [r[1:] for r in RACES], ids=[r[0] for r in RACES])
def test_races(body: str, kinds: Kinds) -> None:
    check_kinds(lambda options: launch(body, options)[1], kinds)


def test_what_is_not_followed() -> None:
    plain = LOAD.replace(".tensor.2d", "").replace(".tile", "").replace(
        "[%p0, {0, 0}], [%r21], 3", "[%p0], 2048, [%r21], 3")  # fmt: skip
    with pytest.raises(UnsupportedPtxError, match="multicast of plain bytes"):
        launch(plain)
