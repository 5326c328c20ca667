"""What orders ordinary accesses and those of asynchronous units: fences, completion, and waits. A
wrong kernel for each rule, and its right twin."""

from __future__ import annotations

import pytest

from flash_helpers.emulator import InvalidOperandError

from ..race_kinds import Kinds, check_kinds
from .test_rules import (
    ARRIVE,
    COMMIT,
    END,
    EXPECT,
    FILL,
    LOAD,
    ONE,
    OVER_LOAD,
    OVER_STORE,
    PROXY,
    READY,
    STORE,
    SYNC,
    TILE,
    UNFENCED,
    WAIT_READ,
    launch,
    wait_at,
)


def handed_over(fence: str, later: str) -> str:
    """All 64 threads write the tile and arrive; thread 0 waits and stores it."""
    written = "mov.u32 %r22, 64;\n" + READY + TILE + fence + ARRIVE + later
    return written + ONE + wait_at() + STORE + COMMIT + WAIT_READ + END


# Threads 0 and 32 store the tile's first lines to different places; thread 33 writes there.
BULK = "@{q} cp.async.bulk.global.shared::cta.bulk_group [%p1+{at}], [%r20], 1024;\n@{q} " + COMMIT
FIRST, SECOND = (BULK.format(q=q, at=at) for q, at in (("%q0", 0), ("%q3", 1024)))
STORED_TWICE = TILE + PROXY + SYNC + "setp.eq.u32 %q3, %t, 32;\n" + FIRST + SYNC + SECOND
OVERWRITTEN = SYNC + "setp.eq.u32 %q4, %t, 33; @%q4 st.shared.u32 [%r20], %t;\n" + WAIT_READ

ADDED, STORED = "red.shared.add.u32 [%r10], %t;\n", ONE + STORE + COMMIT + WAIT_READ + END

FENCES, FENCES_AND_BARRIERS = PROXY * 20, (PROXY + "bar.warp.sync -1;\n") * 20

RACES: list[tuple[str, str, Kinds]] = [
    ("fences behind a hand-over", handed_over(PROXY, FENCES), ()),
    ("with barriers", handed_over(PROXY, FENCES_AND_BARRIERS), ()),
    ("do not replace the one before it", handed_over("", FENCES), (UNFENCED,)),
    ("nor with barriers", handed_over("", FENCES_AND_BARRIERS), (UNFENCED,)),
    ("a second store does not hide the first", STORED_TWICE + "@%q3 " + WAIT_READ + OVERWRITTEN,
     (OVER_STORE,)),
    ("nor the first the second", STORED_TWICE + "@%q0 " + WAIT_READ + OVERWRITTEN, (OVER_STORE,)),
    ("both are waited for", STORED_TWICE + WAIT_READ + OVERWRITTEN, ()),
    ("a load over one in flight", READY + ONE + EXPECT.replace("4096", "8192") + LOAD + LOAD
     + wait_at() + END, (OVER_LOAD,)),
    ("over one that has landed", READY + ONE + EXPECT + LOAD + wait_at() + EXPECT + LOAD
     + wait_at(1).replace("[%r21], 0", "[%r21], 1") + END, ()),
    ("an atomic update is a write", FILL + ADDED + SYNC + STORED, (UNFENCED,)),
    ("a fenced one", FILL + ADDED + PROXY + SYNC + STORED, ()),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kinds"), [rule[1:] for rule in RACES], ids=[r[0] for r in RACES])
def test_a_race(body: str, kinds: Kinds) -> None:
    check_kinds(lambda options: launch(body, options)[1], kinds)


# The threads' words of `out`, from where the copy engine loads; or to where it stores, %q0 waiting.
STORE_WORD = "cvt.u64.u32 %x8, %r0; add.u64 %x8, %p1, %x8; st.global.u32 [%x8], %t;\n"
ADD_WORD = STORE_WORD.replace("st.global.u32", "red.global.add.u32")
LOAD_OUT = ONE + EXPECT + LOAD.replace("%x1", "%x2")
LOADED_OUT = LOAD_OUT + wait_at() + END
STORED_OUT = TILE + PROXY + SYNC + ONE + STORE + COMMIT
READ, WRITE = "ld.global.u32 %r30, [%p1+256];\n", "st.global.u32 [%p1+256], %t;\n"
WRITTEN = WAIT_READ.replace(".read", "")
ALL, OF_GLOBAL = "fence.proxy.async;\n", "fence.proxy.async.global;\n"
READ_STORED, OVER_STORED = (f"{word} what a bulk store in flight writes" for word in
                            ("read of", "write to"))  # fmt: skip
OVER_LOADED = "write to the source of a bulk load in flight"

GLOBAL_RACES: list[tuple[str, str, Kinds]] = [
    ("stored and fenced", READY + STORE_WORD + ALL + SYNC + LOADED_OUT, ()),
    ("for global memory", READY + STORE_WORD + OF_GLOBAL + SYNC + LOADED_OUT, ()),
    ("not fenced", READY + STORE_WORD + SYNC + LOADED_OUT, (UNFENCED,)),
    ("for shared memory alone", READY + STORE_WORD + PROXY + SYNC + LOADED_OUT, (UNFENCED,)),
    ("too late", READY + STORE_WORD + SYNC + ALL + LOADED_OUT, (UNFENCED,)),
    ("an atomic update is a write", READY + ADD_WORD + SYNC + LOADED_OUT, (UNFENCED,)),
    ("a fenced one", READY + ADD_WORD + ALL + SYNC + LOADED_OUT, ()),
    ("stored over a store", STORE_WORD + STORED_OUT + WAIT_READ + END, (UNFENCED,)),
    ("over a fenced one", STORE_WORD + OF_GLOBAL + STORED_OUT + WAIT_READ + END, ()),
    ("the source has been read, nothing written", STORED_OUT + WAIT_READ + READ + END,
     (READ_STORED,)),
    ("written", STORED_OUT + WRITTEN + READ + END, ()),
    ("others do not know", STORED_OUT + WAIT_READ + END + READ, (READ_STORED,)),
    ("but after a barrier", STORED_OUT + WRITTEN + END + READ, ()),
    ("the wait is for older groups", STORED_OUT + WRITTEN.replace("0;", "1;") + READ + WRITTEN
     + END, (READ_STORED,)),
    ("two stores", STORED_OUT + STORE + COMMIT + WAIT_READ + END, (OVER_STORED,)),
    ("one after the other", STORED_OUT + WRITTEN + STORE + COMMIT + WAIT_READ + END, ()),
    ("a write over a store", STORED_OUT + WAIT_READ + WRITE + END, (OVER_STORED,)),
    ("a write after a store", STORED_OUT + WRITTEN + WRITE + END, ()),
    ("a load of what is being stored", READY + STORED_OUT + WAIT_READ + SYNC.replace("sync 0",
     "warp.sync 1") + EXPECT + LOAD.replace("%x1", "%x2") + wait_at() + END, (READ_STORED,)),
    ("a load of what has been stored", READY + STORED_OUT + WRITTEN + EXPECT
     + LOAD.replace("%x1", "%x2") + wait_at() + END, ()),
    ("the source of a load stays", READY + LOAD_OUT + WRITE + wait_at() + END, (OVER_LOADED,)),
    ("until it has landed", READY + LOAD_OUT + wait_at() + WRITE + END, ()),
    ("for those who know", READY + LOAD_OUT + wait_at() + END + "@%q0 " + WRITE, ()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "kinds"), [rule[1:] for rule in GLOBAL_RACES], ids=[r[0] for r in GLOBAL_RACES]
)
def test_a_race_in_global_memory(body: str, kinds: Kinds) -> None:
    check_kinds(lambda options: launch(body, options)[1], kinds)


HINTED = LOAD.replace("bytes [", "bytes.L2::cache_hint [").replace("[%r21];", "[%r21], %x9;")
LOADED = READY + ONE + EXPECT + "mov.b64 %x9, {};\n" + HINTED.replace("{", "{{").replace("}", "}}")
LOADED += wait_at() + END


@pytest.mark.parametrize(
    "policy",
    [0x1000000000000000, 0x10F0000000000000, 0x12F0000000000000, 0x14F0000000000000,
     0x1520000000000000, 0x18D0002000000000],
    ids=hex,
)  # fmt: skip
def test_a_cache_policy(policy: int) -> None:
    """Normal, evict first and last, with a fraction; and of a range of addresses."""
    launch(LOADED.format(policy))


@pytest.mark.parametrize(
    "policy",
    [0, 1, 0x12F0000000000001, 0x02F0000000000000, 0x92F0000000000000, 0x0AF0000000000000,
     0x18D0000000000000, 0x18E0002000000000, 0xFFFFFFFFFFFFFFFF],
    ids=hex,
)  # fmt: skip
def test_no_cache_policy(policy: int) -> None:
    with pytest.raises(InvalidOperandError, match="which no createpolicy returns"):
        launch(LOADED.format(policy))
