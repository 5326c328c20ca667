"""cp.async: data arrives with the wait that guarantees it, and not before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import InvalidOperandError, LaunchOptions, PendingAsyncCopyError

from .support import aligned, run_ptx

# Most of these read too early on purpose: the values are looked at, not the race reports.
UNCHECKED = LaunchOptions(races="off")
SMEM = ".shared .align 16 .b8 smem[4096];"
PROLOGUE = "mov.u32 %r10, smem; mad.lo.u32 %r10, %t, 16, %r10; mad.wide.u32 %x0, %t, 16, %p0;\n"
OUT = "mad.wide.u32 %x1, %t, 4, %p1;\n"


def _arrays(groups: int) -> tuple[Any, Any]:
    source = aligned((groups, 32, 4), np.float32)
    source[:] = np.arange(source.size).reshape(source.shape)
    return source, aligned((4, 32), np.float32)


def _read(slot: int, row: int) -> str:
    return f"ld.shared.f32 %f0, [%r10+{slot * 512}]; st.global.f32 [%x1+{row * 128}], %f0;\n"


def _copy(slot: int) -> str:
    return f"cp.async.cg.shared.global [%r10+{slot * 512}], [%x0+{slot * 512}], 16;\n"


def test_each_group_lands_with_its_wait() -> None:
    source, out = _arrays(2)
    body = PROLOGUE + OUT + _copy(0) + "cp.async.commit_group;\n" + _copy(1)
    body += "cp.async.commit_group;\n" + _read(0, 0)
    body += "cp.async.wait_group 1;\n" + _read(0, 1) + _read(1, 2)
    body += "cp.async.wait_group 0;\n" + _read(1, 3)
    report = run_ptx(body, [source, out], SMEM, options=UNCHECKED)
    assert np.isnan(out[0]).all()
    np.testing.assert_array_equal(out[1], source[0, :, 0])
    assert np.isnan(out[2]).all()
    np.testing.assert_array_equal(out[3], source[1, :, 0])
    assert report.async_copies == 64


def test_a_wait_does_not_cover_what_was_never_committed() -> None:
    source, out = _arrays(1)
    body = PROLOGUE + OUT + _copy(0) + "cp.async.wait_group 0;\n" + _read(0, 0)
    body += "cp.async.wait_all;\n" + _read(0, 1)
    run_ptx(body, [source, out], SMEM, options=UNCHECKED)
    assert np.isnan(out[0]).all()
    np.testing.assert_array_equal(out[1], source[0, :, 0])


def test_a_wait_covers_only_the_own_copies() -> None:
    """Lane 31 reads what lane 0 copied: without a barrier, lane 0's wait may come later."""
    source, out = _arrays(1)
    neighbour = "mov.u32 %r11, smem; sub.u32 %r12, 31, %lane; mad.lo.u32 %r11, %r12, 16, %r11;"
    read = "ld.shared.f32 %f0, [%r11]; st.global.f32 [%x1], %f0;"
    body = PROLOGUE + OUT + _copy(0) + neighbour + "cp.async.wait_all;\n"
    run_ptx(body + read, [source, out], SMEM, options=UNCHECKED)
    assert np.isnan(out[0][:16]).all()
    run_ptx(body + "bar.sync 0;\n" + read, [source, out], SMEM, options=UNCHECKED)
    np.testing.assert_array_equal(out[0], source[0, ::-1, 0])


def _sixteen_bytes(copy: str) -> tuple[Any, Any]:
    """The source, and four numbers of shared memory for each lane behind its copy."""
    source, out = _arrays(1)
    body = PROLOGUE + f"mad.wide.u32 %x1, %t, 16, %p1;\n{copy}\ncp.async.wait_all;\n"
    body += "ld.shared.v4.f32 {%f0, %f1, %f2, %f3}, [%r10];\n"
    body += "st.global.v4.f32 [%x1], {%f0, %f1, %f2, %f3};\n"
    run_ptx(body, [source, out], SMEM, options=UNCHECKED)
    return source, out.reshape(32, 4)


@pytest.mark.parametrize(("form", "n_bytes"), [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)])
def test_sizes(form: str, n_bytes: int) -> None:
    source, out = _sixteen_bytes(f"cp.async.{form}.shared.global [%r10], [%x0], {n_bytes};")
    np.testing.assert_array_equal(out[:, : n_bytes // 4], source[0, :, : n_bytes // 4])
    assert np.isnan(out[:, n_bytes // 4 :]).all()  # shared memory starts poisoned


@pytest.mark.parametrize("size", ["", ", 16", ", 4"])
def test_a_cache_hint_changes_nothing(size: str) -> None:
    source, out = _sixteen_bytes(
        "mov.u64 %x2, 0x12f0000000000000;\n"
        f"cp.async.cg.shared.global.L2::cache_hint.L2::128B [%r10], [%x0], 16{size}, %x2;"
    )
    n = 1 if "4" in size else 4
    np.testing.assert_array_equal(out[:, :n], source[0, :, :n])
    np.testing.assert_array_equal(out[:, n:], 0)


def test_a_shorter_source_is_filled_with_zeros_and_not_read_beyond() -> None:
    source, out = _arrays(1)
    last = source.reshape(-1)[-1:]  # 4 bytes before the end of the range
    body = PROLOGUE.replace("mad.wide.u32 %x0, %t, 16, %p0", "mov.u64 %x0, %p0") + OUT
    body += "setp.eq.u32 %q0, %t, 0; selp.b32 %r0, 4, 0, %q0;\n"
    body += "cp.async.cg.shared.global [%r10], [%x0], 16, %r0;\ncp.async.wait_all;\n"
    body += _read(0, 0) + "ld.shared.f32 %f0, [%r10+4]; st.global.f32 [%x1+128], %f0;"
    start = source.ctypes.data + source.nbytes - 4
    assert start % 16 == 12  # misaligned for cp.async: an aligned copy is needed
    tail = aligned(1, np.float32)
    tail[:] = last
    run_ptx(body, [tail, out], SMEM)
    np.testing.assert_array_equal(out[0], [last[0], *[0] * 31])
    np.testing.assert_array_equal(out[1], np.zeros(32))


def test_more_source_bytes_than_the_copy_has_is_an_error() -> None:
    source, out = _arrays(1)
    body = PROLOGUE + "mov.u32 %r0, 20; cp.async.cg.shared.global [%r10], [%x0], 16, %r0;"
    with pytest.raises(InvalidOperandError, match="16 bytes with 20 source bytes"):
        run_ptx(body, [source, out], SMEM, options=UNCHECKED)


def test_exit_with_a_copy_in_flight_is_an_error() -> None:
    source, out = _arrays(1)
    body = PROLOGUE + _copy(0) + "cp.async.commit_group;\n"
    with pytest.raises(PendingAsyncCopyError, match=r"1 of its cp\.async copies are in flight"):
        run_ptx(body, [source, out], SMEM, options=UNCHECKED)


def test_a_long_pipeline() -> None:
    """Three stages over 600 iterations: the queue of a pipeline that never drains stays short."""
    source, out = _arrays(3)
    body = PROLOGUE + OUT + "mov.u32 %r20, 0; mov.f32 %f9, 0f00000000;\n"
    body += _copy(0) + "cp.async.commit_group;\n" + _copy(1) + "cp.async.commit_group;\n"
    body += "LOOP:\n" + _copy(2) + "cp.async.commit_group; cp.async.wait_group 2;\n"
    body += "ld.shared.f32 %f0, [%r10]; add.f32 %f9, %f9, %f0;\n"
    body += _copy(0) + "cp.async.commit_group; cp.async.wait_group 2;\n"
    body += "ld.shared.f32 %f0, [%r10+512]; add.f32 %f9, %f9, %f0;\n"
    body += _copy(1) + "cp.async.commit_group; cp.async.wait_group 2;\n"
    body += "ld.shared.f32 %f0, [%r10+1024]; add.f32 %f9, %f9, %f0;\n"
    body += "add.u32 %r20, %r20, 1; setp.lt.u32 %q0, %r20, 200; @%q0 bra LOOP;\n"
    body += "cp.async.wait_all; st.global.f32 [%x1], %f9;"
    run_ptx(body, [source, out], SMEM, options=UNCHECKED)
    np.testing.assert_array_equal(out[0], 200 * source[:, :, 0].sum(axis=0))
