"""Counts of hand-written kernels against counts by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import Counts, LaunchOptions, counts_from_csv, counts_to_csv
from flash_helpers.emulator.counters.count_tables import (
    access_comparison_table,
    access_table,
    class_table,
    comparison_table,
)
from flash_helpers.emulator.counters.counting import CLASSES, opcode_class

from .support import aligned, cuda_kernel, run, run_ptx

SHARED = ".extern .shared .align 128 .b8 smem[];"


def count(body: str, *, shared_bytes: int = 16384, options: Any = None, **launch: Any) -> Counts:
    """Runs `body` with %p0 pointing to 64 KiB of zeros, %r90 at the start of shared memory."""
    memory = aligned(16384, np.uint32)
    report = run_ptx(
        f"mov.u32 %r90, smem;\n{body}",
        [memory],
        globals_=SHARED,
        shared_bytes=shared_bytes,
        options=options or LaunchOptions(count=True, races="off"),
        **launch,
    )
    assert report.counts is not None
    return report.counts


def totals(counts: Counts, opcode: str) -> tuple[int, int, int, int, int]:
    """Executions, wavefronts, ideal, sectors, ideal of the instructions that start like this."""
    found = [i.totals for i in counts.instructions if i.opcode.startswith(opcode)]
    assert found
    t = sum(found[1:], found[0])
    return t.executions, t.wavefronts, t.ideal_wavefronts, t.sectors, t.ideal_sectors


GUARDED = """setp.lt.u32 %q0, %lane, 8;
    mad.lo.u32 %r0, %lane, 128, %r90;
    @%q0 st.shared.u32 [%r0], %r0;
    setp.gt.u32 %q1, %lane, 40;
    @%q1 st.shared.u16 [%r0], %h0;"""


def test_guards_take_lanes_out() -> None:
    counts = count(GUARDED)
    assert totals(counts, "st.shared.u32") == (1, 8, 1, 0, 0)
    assert totals(counts, "st.shared.u16") == (1, 0, 0, 0, 0)  # issued, with no lane


# Lane l goes round l % 4 + 1 times, and accesses address l each time.
LOOP = """and.b32 %r0, %lane, 3;
    mad.lo.u32 %r1, %lane, 4, %r90;
again:
    ld.shared.u32 %r2, [%r1];
    setp.eq.u32 %q0, %r0, 0;
    sub.u32 %r0, %r0, 1;
    @!%q0 bra again;
    st.shared.u32 [%r1], %r2;"""


def test_divergent_loops_count_as_the_longest_lane() -> None:
    counts = count(LOOP)
    assert totals(counts, "ld.shared") == (4, 4, 4, 0, 0)
    assert totals(counts, "bra") == (4, 0, 0, 0, 0)
    assert totals(counts, "st.shared") == (1, 1, 1, 0, 0)


def test_a_lane_at_a_time_is_told_apart_by_barriers() -> None:
    """Only lane i stores in round i: as many instructions as rounds, not one by all lanes."""
    body = """mov.u32 %r0, 0;
        again:
        setp.ne.u32 %q0, %r0, %lane;
        @%q0 bra skip;
        st.shared.u32 [%r90], %r0;
        skip:
        bar.sync 0;
        add.u32 %r0, %r0, 1;
        setp.lt.u32 %q1, %r0, 5;
        @%q1 bra again;"""
    assert totals(count(body), "st.shared") == (5, 5, 5, 0, 0)


def test_both_sides_of_a_branch_are_executed() -> None:
    body = """mov.u32 %r1, 3;
        and.b32 %r0, %lane, 1;
        setp.eq.u32 %q0, %r0, 0;
        @%q0 bra even;
        add.u32 %r1, %r1, 1;
        bra done;
        even:
        mul.lo.u32 %r1, %r1, 5;
        done:
        xor.b32 %r1, %r1, 1;"""
    counts = count(body)
    assert [totals(counts, name)[0] for name in ("add", "mul.lo", "xor", "bra")] == [1, 1, 1, 2]
    uniform = count(body.replace("and.b32 %r0, %lane, 1", "mov.u32 %r0, 0"))
    assert [totals(uniform, name)[0] for name in ("add", "mul.lo", "xor", "bra")] == [0, 1, 1, 1]


@pytest.mark.parametrize(
    "options",
    [
        LaunchOptions(count=True, races="off", workers=1),
        LaunchOptions(count=True, races="off", workers=3),
        LaunchOptions(count=True, races="off", lane_order="reverse"),
    ],
    ids=["one worker", "three", "reverse"],
)
def test_warps_and_blocks_add_up(options: LaunchOptions) -> None:
    """Two and a half warps, and a loop that meets at a barrier three times."""
    body = """mov.u32 %r0, 0;
        mad.lo.u32 %r1, %t, 8, %r90;
        again:
        st.shared.u32 [%r1], %r0;
        bar.sync 0;
        ld.shared.u32 %r2, [%r1];
        add.u32 %r0, %r0, 1;
        setp.lt.u32 %q0, %r0, 3;
        @%q0 bra again;"""
    counts = count(body, block=80, grid=5, options=options)
    # A whole warp needs two wavefronts at stride 2, the half warp one.
    assert totals(counts, "st.shared") == (5 * 3 * 3, 5 * 3 * 5, 5 * 3 * 3, 0, 0)
    assert totals(counts, "ld.shared") == totals(counts, "st.shared")
    assert totals(counts, "bar.sync")[0] == 5 * 3 * 3
    assert totals(counts, "ret")[0] == 5 * 3


def test_source_lines_and_mma_free_cuda() -> None:
    kernel = cuda_kernel(
        """extern "C" __global__ void kernel(float* a) {
          __shared__ float tile[32][32];
          tile[threadIdx.x][threadIdx.y] = a[threadIdx.y * 32 + threadIdx.x];
          __syncthreads();
          a[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.y][threadIdx.x];
        }"""
    )
    values = aligned(1024, np.float32)
    report = kernel.launch(
        (1, 1, 1),
        (32, 32, 1),
        0,
        [values.ctypes.data.to_bytes(8, "little")],
        [_range(values)],
        options=LaunchOptions(count=True, races="off"),
    )
    assert report.counts is not None
    by_source = report.counts.by_source()
    column = next(
        t for (source, op), t in by_source.items() if source == "kernel.cu:3" and "st." in op
    )
    row = next(
        t for (source, op), t in by_source.items() if source == "kernel.cu:5" and "ld." in op
    )
    assert (column.executions, column.wavefronts, column.conflicts) == (32, 1024, 992)
    assert (row.executions, row.wavefronts, row.conflicts) == (32, 32, 0)
    assert report.counts.by_class()["global ld"].sectors == 128


def _range(array: Any) -> Any:
    from flash_helpers.emulator import memory_range_of

    return memory_range_of(array, "a")


def test_nothing_is_counted_unless_asked() -> None:
    values = aligned(4, np.uint32)
    kernel = cuda_kernel('extern "C" __global__ void kernel(int* a) { a[0] = 1; }')
    assert run(kernel, [values]).counts is None
    assert run(kernel, [values], options=LaunchOptions(count=True, races="off")).counts is not None
    assert values[0] == 1


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma"),
        ("fma.rn.ftz.f32", "FMA"),
        ("add.f32", "FMA"),
        ("mul.bf16x2", "FMA"),
        ("add.s32", "integer"),
        ("max.f32", "integer"),
        ("setp.lt.f32", "integer"),
        ("ex2.approx.ftz.f32", "MUFU"),
        ("div.rn.f32", "MUFU"),
        ("div.u32", "integer"),
        ("cvt.rn.f16.f32", "conversion"),
        ("ld.param.u64", "other"),
        ("ld.u32", "global ld"),
        ("ld.shared::cta.u32", "shared ld"),
        ("st.volatile.shared.u32", "shared st"),
        ("st.local.u32", "other"),
        ("atom.shared.add.u32", "atomic"),
        ("cp.async.wait_group", "barrier"),
        ("bra.uni", "branch"),
        ("mov.u32", "other"),
    ],
)
def test_classes(opcode: str, expected: str) -> None:
    assert opcode_class(tuple(opcode.split("."))) == expected
    assert expected in CLASSES


def test_csv_round_trip_and_refusals() -> None:
    counts = count(LOOP)
    text = counts_to_csv(counts)
    assert counts_from_csv(text) == counts
    for broken, line in (
        ("", "line 1"),
        (text.replace("executions", "exécutions"), "line 1"),
        (text.replace(",integer,", ",integers,", 1), r"line \d+"),
        (text.replace("branch,4", "branch,four"), r"line \d+"),
        (text.replace("branch,4,", "branch,4,4,"), r"line \d+"),
    ):
        with pytest.raises(ValueError, match=line):
            counts_from_csv(broken)


def test_tables() -> None:
    before, after = count(LOOP), count(LOOP.replace("%lane, 4", "%lane, 8"))
    assert "shared ld" in class_table(before) and "mma" not in class_table(before)
    assert "ld.shared.u32" in access_table(after)
    rows = [line.split("|")[1:-1] for line in comparison_table(before, after).splitlines()[3:-1]]
    cells = {row[0].strip(): [item.strip() for item in row[1:]] for row in rows}
    assert cells["shared ld"][:6] == ["4", "4", "=", "4", "8", "+4"]
    assert cells["branch"][:3] == ["5", "5", "="]
    different = access_comparison_table(before, after)
    assert "ld.shared.u32" in different and "st.shared.u32" in different
    assert "bra" not in different
