"""Waits that end early, operands that are read from their issue on, registers that nobody owns,
and instructions of a warp that only a part of it executes: a wrong kernel for each, and its right
twin."""

from __future__ import annotations

import pytest

from flash_helpers.emulator import (
    DeadlockError,
    DivergentCollectiveError,
    KernelError,
    LaunchOptions,
    schedules,
)

from .test_rules import (
    EXPECT,
    LOAD,
    LOAD_UNSEEN,
    LOADED,
    READY,
    SETUP,
    launch,
    wait_at,
)
from .test_wgmma_rules import FENCE, FILL, GOOD, WCOMMIT, WDONE, WGMMA, WGMMA_SETUP

REPORT = LaunchOptions(races="report")
OVER_WGMMA = "write to a source of wgmma in flight"
ASKED_ONCE = "mbarrier.try_wait.parity.shared::cta.b64 %q9, [%r21], 0;\n"
READ_TILE = "ld.shared.u32 %r30, [%r10];\n"
FILLED = WGMMA_SETUP.replace("fence.proxy", FILL + "fence.proxy")


def kinds(body: str, setup: str | None = None, block: int = 64) -> set[str]:
    """Of the races under every schedule, with several random ones."""
    found = set()
    for seed in range(4):
        for options in schedules(seed=seed, options=REPORT):
            _, report = launch(body, options, block=block, setup=setup or SETUP)
            found |= {race.kind for race in report.races}
    return found


def test_a_wait_may_end_before_its_phase() -> None:
    loading = READY + "@!%q0 bra L0;\n" + EXPECT + LOAD + "L0:\n"
    # In the end all wait in earnest, so that the load does not outlive the block.
    assert LOAD_UNSEEN in kinds(loading + ASKED_ONCE + READ_TILE + wait_at())
    assert kinds(loading + wait_at() + READ_TILE) == set()
    assert loading + wait_at() == LOADED


def test_a_wgmma_reads_from_its_issue_on() -> None:
    loading = READY + "@!%q0 bra L0;\n" + EXPECT + LOAD + "L0:\n"
    late = loading + FENCE + WGMMA + wait_at() + WCOMMIT + WDONE
    early = loading + wait_at() + FENCE + WGMMA + WCOMMIT + WDONE
    assert LOAD_UNSEEN in kinds(late, FILLED, block=128)
    assert kinds(early, FILLED, block=128) == set()


def test_its_operands_stay_from_its_issue_on() -> None:
    store = "st.shared.u32 [%r10], %t;\n"
    assert OVER_WGMMA in kinds(FENCE + WGMMA + store + WCOMMIT + WDONE, FILLED, block=128)
    assert kinds(GOOD + "bar.sync 0;\n" + store, FILLED, block=128) == set()


@pytest.mark.parametrize(("given_back", "enough"), [(24, True), (32, False)])
def test_the_pool_is_the_blocks(given_back: int, enough: bool) -> None:
    """384 threads have 168 registers each, 504 of a thread of each group: what the division of
    65,536 leaves over belongs to nobody."""
    body = (
        "setp.lt.u32 %q2, %t, 128; @%q2 bra GIVE; setmaxnreg.inc.sync.aligned.u32 240; bra END;\n"
        f"GIVE: setmaxnreg.dec.sync.aligned.u32 {given_back};\nEND: bar.sync 0;\n"
    )
    if enough:
        launch(body, block=384)
        return
    with pytest.raises(DeadlockError, match="wait at setmaxnreg"):
        launch(body, block=384)


@pytest.mark.parametrize("instruction", [FENCE, WDONE])
def test_half_a_warp_is_not_enough(instruction: str) -> None:
    half = f"setp.lt.u32 %q2, %lane, 16; @%q2 bra H;\n{instruction}H:\n"
    whole = f"{instruction}H:\n"
    for options in schedules(seed=1):
        launch(GOOD + whole, options, block=128, setup=FILLED)
        with pytest.raises(KernelError) as caught:
            launch(GOOD + half, options, block=128, setup=FILLED)
        assert isinstance(caught.value, DivergentCollectiveError | DeadlockError)
