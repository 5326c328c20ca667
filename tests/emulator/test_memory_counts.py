"""What accesses to memory cost, by hand: wavefronts and sectors."""

from __future__ import annotations

import numpy as np
import pytest

from flash_helpers.emulator import LaunchOptions

from .support import aligned, run_ptx
from .test_counts import count, totals

WIDTHS = {
    2: ("u16", "%h0"),
    4: ("u32", "%r1"),
    8: ("v2.u32", "{%r1, %r2}"),
    16: ("v4.u32", "{%r1, %r2, %r3, %r4}"),
}


@pytest.mark.parametrize(
    ("n_bytes", "stride", "wavefronts", "ideal"),
    [
        (4, 4, 1, 1),
        (4, 8, 2, 1),  # lanes l and l + 16 share a bank
        (4, 12, 1, 1),  # 3 is odd: all banks
        (4, 64, 16, 1),
        (4, 128, 32, 1),  # all in one bank
        (4, 132, 1, 1),  # padded
        (4, 0, 1, 1),  # broadcast
        (2, 2, 1, 1),  # two lanes a word
        (2, 4, 1, 1),
        (8, 8, 2, 2),  # half warps
        (8, 16, 4, 2),
        (8, 0, 2, 2),
        (16, 16, 4, 4),  # quarter warps
        (16, 32, 8, 4),  # lanes l and l + 4 of a quarter share banks
        (16, 128, 32, 4),
        (16, 144, 4, 4),  # padded
    ],
)
def test_shared_strides(n_bytes: int, stride: int, wavefronts: int, ideal: int) -> None:
    width, registers = WIDTHS[n_bytes]
    body = f"""mad.lo.u32 %r0, %lane, {stride}, %r90;
        st.shared.{width} [%r0], {registers};
        ld.shared.{width} {registers}, [%r0];"""
    counts = count(body)
    assert totals(counts, "ld.shared") == (1, wavefronts, ideal, 0, 0)
    # Lanes that write one word do not conflict either.
    assert totals(counts, "st.shared") == (1, wavefronts, ideal, 0, 0)


@pytest.mark.parametrize(
    ("n_bytes", "stride", "offset", "sectors", "ideal"),
    [
        (4, 4, 0, 4, 4),
        (4, 4, 4, 5, 4),  # starts within a sector
        (4, 8, 0, 8, 4),
        (4, 32, 0, 32, 4),
        (4, 128, 0, 32, 4),
        (4, 0, 0, 1, 1),
        (2, 2, 0, 2, 2),
        (16, 16, 0, 16, 16),
        (16, 32, 0, 32, 16),
    ],
)
def test_global_strides(n_bytes: int, stride: int, offset: int, sectors: int, ideal: int) -> None:
    width, registers = WIDTHS[n_bytes]
    body = f"""mul.wide.u32 %x0, %lane, {stride};
        add.u64 %x0, %x0, %p0;
        ld.global.{width} {registers}, [%x0+{offset}];
        st.global.{width} [%x0+{offset}], {registers};"""
    counts = count(body)
    assert totals(counts, "ld.global") == (1, 0, 0, sectors, ideal)
    assert totals(counts, "st.global") == (1, 0, 0, sectors, ideal)


def test_sectors_count_from_the_start_of_the_array() -> None:
    values = aligned(64, np.uint32)[5:37]  # 20 bytes behind a boundary: a GPU would align it
    report = run_ptx(
        "mul.wide.u32 %x0, %lane, 4;\nadd.u64 %x0, %x0, %p0;\nld.global.u32 %r1, [%x0];",
        [values],
        options=LaunchOptions(count=True, races="off"),
    )
    assert report.counts is not None
    assert totals(report.counts, "ld.global")[3:] == (4, 4)


@pytest.mark.parametrize(("matrices", "ideal"), [(1, 1), (2, 2), (4, 4)])
@pytest.mark.parametrize(("swizzled", "factor"), [(False, 8), (True, 1)])
def test_ldmatrix_rows_of_128_bytes(matrices: int, ideal: int, swizzled: bool, factor: int) -> None:
    registers = ", ".join(f"%r{10 + i}" for i in range(matrices))
    body = f"""and.b32 %r0, %lane, 7;      // row of the matrix
        shr.u32 %r1, %lane, 3;              // matrix: columns 8m to 8m + 7
        {"xor.b32 %r1, %r1, %r0;" if swizzled else ""}
        shl.b32 %r1, %r1, 4;
        mad.lo.u32 %r2, %r0, 128, %r1;
        add.u32 %r2, %r2, %r90;
        ldmatrix.sync.aligned.m8n8.x{matrices}.shared.b16 {{{registers}}}, [%r2];"""
    assert totals(count(body), "ldmatrix") == (1, factor * ideal, ideal, 0, 0)


def test_cp_async_counts_both_sides() -> None:
    body = """mul.wide.u32 %x0, %lane, 32;
        add.u64 %x0, %x0, %p0;
        mad.lo.u32 %r0, %lane, 16, %r90;
        and.b32 %r1, %lane, 16;             // lanes 0 to 15 read nothing
        cp.async.cg.shared.global [%r0], [%x0], 0x10, %r1;
        cp.async.commit_group;
        cp.async.wait_group 0;"""
    counts = count(body)
    assert totals(counts, "cp.async.cg") == (1, 4, 4, 16, 8)
    assert counts.by_class()["cp.async"].executions == 1
    assert counts.by_class()["barrier"].executions == 2


def test_bytes_that_several_lanes_read_count_once() -> None:
    body = """and.b32 %r1, %lane, 1;
        mad.lo.u32 %r1, %r1, 12, 4;         // 4 or 16 bytes
        mad.lo.u32 %r0, %lane, 16, %r90;
        shr.u32 %r2, %lane, 3;              // from one of four places
        mad.wide.u32 %x0, %r2, 16, %p0;
        cp.async.cg.shared.global [%r0], [%x0+16], 16, %r1;
        cp.async.wait_all;"""
    assert totals(count(body), "cp.async.cg")[3:] == (3, 2)


def test_local_memory_is_neither_shared_nor_global() -> None:
    body = """.local .align 4 .b8 own[4];
        mov.u64 %x0, own;
        cvta.local.u64 %x0, %x0;
        st.u32 [%x0], %t;"""
    assert totals(count(body), "st.u32") == (1, 0, 0, 0, 0)


def test_atomics_to_one_word_serialise() -> None:
    same = count("red.shared.add.u32 [%r90], 1;")
    assert totals(same, "red.shared") == (1, 32, 1, 0, 0)
    apart = count("mad.lo.u32 %r0, %lane, 4, %r90;\natom.shared.add.u32 %r1, [%r0], 1;")
    assert totals(apart, "atom.shared") == (1, 1, 1, 0, 0)


def test_a_generic_address_counts_for_the_memory_it_names() -> None:
    body = """cvt.u64.u32 %x0, %r90;
        cvta.shared.u64 %x0, %x0;
        setp.lt.u32 %q0, %lane, 16;
        selp.b64 %x1, %x0, %p0, %q0;        // lanes 0 to 15 shared, the others global
        mad.wide.u32 %x1, %lane, 8, %x1;
        ld.u32 %r1, [%x1];"""
    assert totals(count(body), "ld.u32") == (1, 1, 1, 4, 2)
