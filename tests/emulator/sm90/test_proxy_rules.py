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
    LOAD,
    ONE,
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
]  # fmt: skip


@pytest.mark.parametrize(("body", "kinds"), [rule[1:] for rule in RACES], ids=[r[0] for r in RACES])
def test_a_race(body: str, kinds: Kinds) -> None:
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
