"""Sums in global memory that threads, or the copy engine for them, add to: what is added, and what
orders it. A wrong kernel for each rule, and its right twin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import (
    InvalidOperandError,
    KernelError,
    LaunchOptions,
    MisalignedAccessError,
    PendingAsyncCopyError,
)

from ..race_kinds import EITHER, WAW, Kinds, check_kinds
from .test_rules import COMMIT, END, ONE, OVER_STORE, SYNC, TILE, UNFENCED, WAIT_READ, launch

PROXY, OF_GLOBAL = "fence.proxy.async.shared::cta;\n", "fence.proxy.async.global;\n"
WRITTEN = WAIT_READ.replace(".read", "")
READ_STORED, OVER_STORED = (f"{word} what a bulk store in flight writes" for word in
                            ("read of", "write to"))  # fmt: skip

# Thread t's word of the tile is float(t), in each of the tile's first lines.
FLOATS = TILE.replace("%t;", "%f1;")
READY = "cvt.rn.f32.u32 %f1, %t;\n" + FLOATS + PROXY + SYNC
BULK = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%p1], [%r20], {bytes};\n"
ADD = BULK.format(bytes=256) + COMMIT
# The same by threads 0 and 32.
BOTH = "setp.eq.u32 %q3, %t, 32; or.pred %q4, %q0, %q3; @!%q4 bra END;\n"
READ, WRITE = "ld.global.u32 %r30, [%p1+16];\n", "st.global.u32 [%p1+16], %t;\n"
# Each thread's own four sums.
PLACE = "shl.b32 %r1, %t, 4; cvt.u64.u32 %x8, %r1; add.u64 %x8, %p1, %x8;\n"
VECTOR = "red.global.add.v4.f32 [%x8], {%f1, %f1, %f2, %f1};\n"
VALUES = "cvt.rn.f32.u32 %f1, %t; mov.f32 %f2, 0f3F800000;\n"
LAST = "setp.eq.u32 %q3, %t, 32;\n"


def sums(body: str) -> Any:
    return launch(body)[0].view(np.float32).ravel()


def test_the_copy_engine_adds_what_it_finds() -> None:
    found = sums(READY + BOTH + ADD + BULK.format(bytes=64) + COMMIT + WAIT_READ + END)
    expected = np.zeros_like(found)
    expected[:64] = 2 * np.arange(64)
    expected[:16] *= 2
    assert (found == expected).all()


def test_a_vector_of_sums() -> None:
    found = sums(VALUES + PLACE + VECTOR + VECTOR)[:256].reshape(64, 4)
    thread = np.arange(64, dtype=np.float32)
    assert (found == 2 * np.stack([thread, thread, np.ones(64), thread], 1)).all()


ERRORS: list[tuple[str, str, type[KernelError], str]] = [
    ("bytes", READY + ONE + BULK.format(bytes=24) + COMMIT + WAIT_READ + END, InvalidOperandError,
     "of 24 bytes"),
    ("nobody waits", READY + ONE + ADD + END, PendingAsyncCopyError, "1 groups of its bulk stores"),
    ("a misaligned vector", VALUES + PLACE + VECTOR.replace("%x8", "%x8+4"), MisalignedAccessError,
     "of 16 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "error", "text"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS]
)
def test_an_error(body: str, error: type[KernelError], text: str) -> None:
    with pytest.raises(error) as caught:
        launch(body)
    assert text in caught.value.message


RACES: list[tuple[str, str, Kinds]] = [
    ("fenced terms", READY + ONE + ADD + WAIT_READ + END, ()),
    ("terms that nobody fenced", READY.replace(PROXY, "") + ONE + ADD + WAIT_READ + END,
     (UNFENCED,)),
    ("terms stay until the wait", READY + ONE + ADD + "st.shared.u32 [%r20], %t;\n" + WAIT_READ
     + END, (OVER_STORE,)),
    ("as here", READY + ONE + ADD + WAIT_READ + "st.shared.u32 [%r20], %t;\n" + END, ()),
    ("two add to the same sums", READY + BOTH + ADD + WAIT_READ + END, ()),
    ("the copy engine and a thread", READY + ONE + ADD + "red.global.add.f32 [%p1], %f1;\n"
     + WAIT_READ + END, ()),
    ("the terms are read, nothing is added", READY + ONE + ADD + WAIT_READ + READ + END,
     (READ_STORED,)),
    ("it is added", READY + ONE + ADD + WRITTEN + READ + END, ()),
    ("others do not know", READY + ONE + ADD + WAIT_READ + END + READ, (READ_STORED,)),
    ("but after a barrier", READY + ONE + ADD + WRITTEN + END + READ, ()),
    ("the second of two", READY + ONE + ADD + WRITTEN + ADD + WAIT_READ + READ + END,
     (READ_STORED,)),
    ("both", READY + ONE + ADD + ADD + WRITTEN + READ + END, ()),
    ("a write over a reduction", READY + ONE + ADD + WAIT_READ + WRITE + END, (OVER_STORED,)),
    ("a write after it", READY + ONE + ADD + WRITTEN + WRITE + END, ()),
    ("cleared sums are not fenced", READY + ONE + WRITE + ADD + WAIT_READ + END, (UNFENCED,)),
    ("fenced ones", READY + ONE + WRITE + OF_GLOBAL + ADD + WAIT_READ + END, ()),
    ("vectors on top of each other", VALUES + VECTOR.replace("%x8", "%p1"), ()),
    ("a read of a sum", VALUES + PLACE + VECTOR + LAST + "@%q3 ld.global.u32 %r30, [%p1+12];\n",
     EITHER),
    ("behind a barrier", VALUES + PLACE + VECTOR + SYNC + LAST
     + "@%q3 ld.global.u32 %r30, [%p1+12];\n", ()),
    ("a write to a sum", VALUES + PLACE + VECTOR + LAST + "@%q3 st.global.u32 [%p1+12], %t;\n",
     (WAW,)),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kinds"), [rule[1:] for rule in RACES], ids=[r[0] for r in RACES])
def test_a_race(body: str, kinds: Kinds) -> None:
    check_kinds(lambda options: launch(body, options)[1], kinds)


ORDERED: list[tuple[str, str, Kinds]] = [
    ("two add to the same sums", READY + BOTH + ADD + WRITTEN + END, (WAW,)),
    ("and nobody waits for it", READY + BOTH + ADD + WAIT_READ + END, (OVER_STORED,)),
    ("one after the other", READY + ONE + ADD + WRITTEN + ADD + WRITTEN + END, ()),
    ("the first has been read, not added", READY + ONE + ADD + WAIT_READ + ADD + WRITTEN + END,
     (OVER_STORED,)),
    ("the second knows", READY + ONE + ADD + WRITTEN + END + SYNC + LAST + "@!%q3 bra OVER;\n" + ADD
     + WRITTEN + "OVER:\n", ()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "kinds"), [rule[1:] for rule in ORDERED], ids=[r[0] for r in ORDERED]
)
def test_a_race_where_sums_are_to_be_the_same_in_every_run(body: str, kinds: Kinds) -> None:
    check_kinds(lambda options: launch(body, replace(options, ordered_sums=True))[1], kinds)


def test_blocks_add_in_any_order() -> None:
    """No race between them, whatever a random schedule does."""
    for seed in range(3):
        options = LaunchOptions(lane_order="random", seed=seed)
        assert launch(READY + BOTH + ADD + WAIT_READ + END, options)[1].races == ()
