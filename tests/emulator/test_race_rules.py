"""What orders two accesses and what does not: one small kernel for each rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import (
    InvalidLaunchError,
    LaunchOptions,
    LaunchReport,
    PendingAsyncCopyError,
    RaceError,
    compile_kernel,
)

from .race_kinds import EITHER, RAW, UNWRITTEN, WAR, WAW, Kinds, check_kinds
from .support import aligned, cuda_kernel, ptx_kernel, run

SMEM = ".shared .align 16 .b8 smem[4096];"
FLIGHT, WRITE_FLIGHT = "read of an in-flight cp.async", "write to an in-flight cp.async"

# %r10 is the thread's own word, %r11 that of lane ^ 1, %r12 that of thread ^ 32.
SETUP = """mov.u32 %r20, smem; shl.b32 %r0, %t, 2; add.u32 %r10, %r20, %r0; xor.b32 %r1, %r0, 4;
add.u32 %r11, %r20, %r1; xor.b32 %r2, %r0, 128; add.u32 %r12, %r20, %r2;
cvt.u64.u32 %x0, %r0; add.u64 %x1, %p0, %x0; mad.wide.u32 %x2, %t, 16, %p1; shl.b32 %r3, %t, 4;
add.u32 %r13, %r20, %r3; setp.eq.u32 %q0, %t, 0; setp.lt.u32 %q1, %t, 32;
setp.lt.u32 %q2, %lane, 16; setp.eq.u32 %q3, %t, 1; setp.eq.u32 %q4, %t, 16;
setp.eq.u32 %q5, %t, 32;
"""
WRITE = "st.shared.u32 [%r10], %t;\n"
# Where all bytes are written and one thread writes, one reads, a race has one kind only.
FILL = WRITE + "bar.sync 0;\n"
WRITE_0 = "@%q0 st.shared.u32 [smem], 7;\n"
READ_BY_1, READ_BY_16, READ_BY_32 = (f"@%q{n} ld.shared.u32 %r30, [smem];\n" for n in (3, 4, 5))
READ_LANE, READ_WARP = "ld.shared.u32 %r30, [%r11];\n", "ld.shared.u32 %r30, [%r12];\n"
COPY_BEHIND = "cp.async.cg.shared.global [%r13+1024], [%x2], 16;\n"
COPY = "cp.async.cg.shared.global [%r13], [%x2], 16;\n"
ALL, COMMIT = "cp.async.wait_all;\n", "cp.async.commit_group;\n"

RULES: list[tuple[str, str, Kinds]] = [
    ("own accesses are ordered", WRITE + "ld.shared.u32 %r30, [%r10];" + WRITE, ()),
    ("lanes are not ordered", FILL + WRITE_0 + READ_BY_1, EITHER),
    ("syncwarp orders lanes", WRITE + "bar.warp.sync -1;" + READ_LANE, ()),
    ("syncwarp orders no warps", FILL + WRITE_0 + "bar.warp.sync -1;" + READ_BY_32, EITHER),
    (
        "a mask orders its lanes only",
        WRITE + "selp.b32 %r5, 0xFFFF, 0xFFFF0000, %q2; bar.warp.sync %r5;" + READ_LANE,
        (),
    ),
    (
        "lanes of two masks are not ordered",
        FILL + WRITE_0 + "selp.b32 %r5, 0xFFFF, 0xFFFF0000, %q2; bar.warp.sync %r5;" + READ_BY_16,
        EITHER,
    ),
    (
        "a shuffle orders nothing",
        WRITE + "shfl.sync.bfly.b32 %r7, %t, 1, 31, -1;" + READ_LANE,
        (RAW,),
    ),
    ("a vote orders nothing", WRITE + "vote.sync.any.pred %q9, %q0, -1;" + READ_LANE, (RAW,)),
    ("bar.sync orders all", WRITE + "bar.sync 0;" + READ_WARP, ()),
    ("bar.red orders all", WRITE + "bar.red.popc.u32 %r9, 0, %q0;" + READ_WARP, ()),
    ("a barrier before both does not", FILL + "bar.sync 0;" + WRITE_0 + READ_BY_1, EITHER),
    (
        "bar.arrive gives",
        "@!%q1 bra READER; " + WRITE + "bar.arrive 3, 64; bra END;\n"
        "READER: bar.sync 3, 64; " + READ_WARP + "END:",
        (),
    ),
    (
        "bar.arrive does not take",
        FILL + "@!%q1 bra WRITER; bar.arrive 3, 64; @%q0 ld.shared.u32 %r30, [smem]; bra END;\n"
        "WRITER: @%q5 st.shared.u32 [smem], 7; bar.sync 3, 64;\nEND:",
        (WAR, RAW),
    ),
    (
        "what follows bar.arrive is not given",
        FILL + "@!%q1 bra READER; bar.arrive 3, 64; " + WRITE_0 + "bra END;\n"
        "READER: bar.sync 3, 64; " + READ_BY_32 + "END:",
        (RAW,),
    ),
    ("others may write the same value", "mov.u32 %r30, 7; st.shared.u32 [smem], %r30;", ()),
    ("but not another", "st.shared.u32 [smem], %t;", (WAW,)),
    ("bytes are told apart", "add.u32 %r6, %r20, %t; st.shared.u8 [%r6], %t;", ()),
    (
        "halves of one word too",
        "add.u32 %r6, %r20, %t; st.shared.u8 [%r6], %t; and.b32 %r7, %r6, -2; bar.warp.sync -1;"
        "ld.shared.u16 %h0, [%r7];",
        (),
    ),
    (
        "and found when they overlap",
        FILL + "@%q0 st.shared.u8 [smem+1], %t; @%q3 ld.shared.u16 %h0, [smem];",
        EITHER,
    ),
    (
        "atomics do not race",
        "@%q0 st.shared.u32 [smem], 0; bar.sync 0; red.shared.add.u32 [smem], 1;"
        "atom.shared.max.u32 %r30, [smem], %t;",
        (),
    ),
    (
        "but with a read",
        FILL + "@%q0 red.shared.add.u32 [smem], 1;" + READ_BY_1,
        EITHER,
    ),
    (
        "a barrier orders atomics and reads",
        "@%q0 st.shared.u32 [smem], 0; bar.sync 0; red.shared.add.u32 [smem], 1; bar.sync 0;"
        "ld.shared.u32 %r30, [smem];",
        (),
    ),
    ("a copy is in flight for its thread", COPY + "ld.shared.u32 %r30, [%r13];" + ALL, (FLIGHT,)),
    ("until it waits", COPY + ALL + "ld.shared.u32 %r30, [%r13];", ()),
    ("a group that was never committed", COPY + COMMIT + COPY_BEHIND
     + "cp.async.wait_group 0; ld.shared.u32 %r30, [%r13+1024];" + ALL, (FLIGHT,)),
    ("but the one before it was", COPY + COMMIT + COPY_BEHIND
     + "cp.async.wait_group 0; ld.shared.u32 %r30, [%r13];" + ALL, ()),
    ("a group that may be in flight", COPY + COMMIT + COPY_BEHIND + COMMIT
     + "cp.async.wait_group 1; ld.shared.u32 %r30, [%r13+1024];" + ALL, (FLIGHT,)),
    ("the one before it may not", COPY + COMMIT + COPY_BEHIND + COMMIT
     + "cp.async.wait_group 1; ld.shared.u32 %r30, [%r13];" + ALL, ()),
    ("stores to a copy in flight", COPY + "st.shared.u32 [%r13+4], %t;" + ALL, (WRITE_FLIGHT,)),
    ("two copies to one place", COPY + COPY + ALL, (WRITE_FLIGHT,)),
    (
        "a barrier orders no copies",
        COPY + "bar.sync 0;" + READ_BY_32 + "bar.sync 0;" + ALL,
        (FLIGHT,),
    ),
    ("nor does a wait behind it", COPY + "bar.sync 0;" + ALL + READ_BY_32, (RAW, FLIGHT)),
    ("wait and barrier do", COPY + ALL + "bar.sync 0; ld.shared.u32 %r30, [smem];", ()),
    ("global words", "@%q0 st.global.u32 [%p0], 7; @%q5 ld.global.u32 %r30, [%p0];", EITHER),
    ("ordered", "st.global.u32 [%x1], %t; bar.sync 0; ld.global.u32 %r30, [%p0];", ()),
    (
        "generic addresses are the same memory",
        FILL + WRITE_0 + "mov.u64 %x5, smem; cvta.shared.u64 %x5, %x5; @%q3 ld.u32 %r30, [%x5];",
        EITHER,
    ),
    (
        "the source of a copy is read until the wait",
        "bar.sync 0; @%q1 bra COPY; bar.sync 0; st.global.u32 [%x1+256], %t; bra END;\n"
        "COPY: @%q0 cp.async.ca.shared.global [%r10], [%p0+384], 4; bar.sync 0;" + ALL + "END:",
        (WAR, RAW),
    ),
    ("bytes that nobody has written", "@%q0 ld.shared.u32 %r30, [smem];", (UNWRITTEN,)),
]  # fmt: skip


def launch(body: str, options: LaunchOptions | None = None, grid: int = 1) -> LaunchReport:
    arrays = [aligned(1024, np.uint32), aligned(1024, np.uint32)]
    kernel = compile_kernel(ptx_kernel(SETUP + body, globals_=SMEM), "kernel")
    return run(kernel, arrays, block=64, grid=grid, options=options)


@pytest.mark.parametrize(("body", "kinds"), [rule[1:] for rule in RULES], ids=[r[0] for r in RULES])
def test_a_rule(body: str, kinds: Kinds) -> None:
    check_kinds(lambda options: launch(body, options), kinds)


def test_blocks_are_not_ordered_and_their_shared_memory_is_their_own() -> None:
    body = WRITE + "bar.sync 0;" + READ_WARP + "@%q0 st.global.u32 [%p0], %r30;"
    assert launch(body).races == ()
    for workers in (1, 2):
        writes = "mov.u32 %r30, %ctaid.x; @%q0 st.global.u32 [%p0], %r30;"
        with pytest.raises(RaceError) as caught:
            launch(writes, LaunchOptions(workers=workers), grid=3)
        (race,) = caught.value.races
        assert race.kind == WAW and race.first is not None
        assert race.first.block != race.second.block
        assert "nothing orders blocks" in str(race)
    reads = "@%q0 ld.shared.u32 %r30, [smem]; " + WRITE
    report = launch(reads, LaunchOptions(races="report", workers=1), grid=3)
    assert [race.kind for race in report.races] == [UNWRITTEN]  # in each block anew
    assert report.races[0].count == 3


LAST_BLOCK = """__device__ unsigned done;
extern "C" __global__ void kernel(float* partial, float* total) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = blockIdx.x;
    __threadfence();
    last = atomicAdd(&done, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    __threadfence();
    for (unsigned i = 0; i < gridDim.x; ++i) *total += partial[i];
  }
}"""


def test_the_last_block_sums_what_all_have_published() -> None:
    partial, total = aligned(8, np.float32), aligned(1, np.float32)
    run(cuda_kernel(LAST_BLOCK), [partial, total], block=64, grid=8)
    assert total[0] == 28
    before, behind = LAST_BLOCK.split("last = ")
    for racing in (
        LAST_BLOCK.replace("__threadfence();", ""),
        before.replace("__threadfence();", "") + "last = " + behind,
        before + "last = " + behind.replace("__threadfence();", ""),
    ):
        with pytest.raises(RaceError, match="nothing orders blocks"):
            run(cuda_kernel(racing), [partial, total], block=64, grid=8)
    unsynchronised = cuda_kernel(LAST_BLOCK.replace("__syncthreads();", ""))
    with pytest.raises(RaceError, match="shared memory last"):  # threads of a block still are
        run(unsynchronised, [partial, total], block=64, grid=8)


def test_the_report_names_both_places_and_the_barrier() -> None:
    body = "bar.sync 0; FIRST: " + WRITE + "SECOND: " + READ_WARP
    with pytest.raises(RaceError) as caught:
        launch(body)
    ptx = ptx_kernel(SETUP + body, globals_=SMEM).splitlines()
    at = {
        word: next(i for i, text in enumerate(ptx, 1) if word in text)
        for word in ("bar.sync", "FIRST", "SECOND")
    }
    races = {race.kind: race for race in caught.value.races}
    race = races[WAR]  # warp 0 reads what warp 1 has not written yet
    assert race.first is not None
    assert (race.memory, race.name, race.first_byte, race.n_bytes) == (
        "shared memory",
        "smem",
        128,
        4,
    )
    assert (race.first.thread, race.first.warp, race.first.lane) == ((0, 0, 0), 0, 0)
    assert (race.second.thread, race.second.warp, race.second.lane) == ((32, 0, 0), 1, 0)
    assert (race.first.source.ptx_line, race.second.source.ptx_line) == (at["SECOND"], at["FIRST"])
    assert f"the last barrier before is at PTX line {at['bar.sync']}" in race.remedy()
    assert race.count == 32
    assert caught.value.location.thread == (32, 0, 0)


def test_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    body = WRITE + READ_LANE
    assert launch(body, LaunchOptions(races="off")).races == ()
    assert launch(body, LaunchOptions(races="report")).races
    monkeypatch.setenv("FLASH_ATTENTION_EMULATOR_RACES", "off")
    assert launch(body).races == ()
    with pytest.raises(RaceError):
        launch(body, LaunchOptions(races="error"))
    monkeypatch.setenv("FLASH_ATTENTION_EMULATOR_RACES", "no")
    with pytest.raises(InvalidLaunchError, match="allowed are error, report, off"):
        launch(body)


def test_an_error_carries_the_race_that_came_before() -> None:
    with pytest.raises(PendingAsyncCopyError) as caught:
        launch(WRITE + READ_LANE + COPY)
    assert any("the race detector had found before" in note for note in caught.value.__notes__)


def test_many_places_are_counted_even_where_they_are_not_kept() -> None:
    reads = "".join(f"ld.shared.u32 %r30, [%r11+{4 * i}];\n" for i in range(300))
    report: Any = launch(WRITE + reads, LaunchOptions(races="report", workers=1))
    assert len(report.races) == 256
    assert report.racing_accesses > 300
