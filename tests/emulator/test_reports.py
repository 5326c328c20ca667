"""Every rule that a kernel can break is reported with kernel, block, thread and source line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import (
    DeadlockError,
    DivergentCollectiveError,
    EndlessLoopError,
    InvalidLaunchError,
    InvalidOperandError,
    KernelError,
    LaunchOptions,
    MisalignedAccessError,
    OutOfBoundsError,
    ReadOnlyMemoryError,
    TrapError,
    UnsupportedPtxError,
    compile_kernel,
    memory_range_of,
)

from .support import HEADER, aligned, cuda_kernel, ptx_kernel, run, run_ptx

SMEM = ".shared .align 16 .b8 smem[256];"
ONLY_7 = "setp.eq.u32 %q0, %t, 7;\n"

# What the last of the operands names: the report must hold all of it.
BROKEN: list[tuple[str, type[KernelError], tuple[str, ...]]] = [
    ("ld.shared.u32 %r0, [smem+256];", OutOfBoundsError, ("read of 4 bytes", "byte 256 of 256")),
    ("@%q0 st.shared.v2.u32 [smem+252], {%r0, %r1};", MisalignedAccessError, ("multiple of 8",)),
    ("@%q0 st.shared.v2.u32 [smem+256], {%r0, %r1};", OutOfBoundsError, ("write of 8 bytes",)),
    ("ld.shared.u32 %r0, [0];", OutOfBoundsError, ("byte -1024",)),
    (
        "@%q0 ld.global.u32 %r0, [%p0+128];",
        OutOfBoundsError,
        ("0 bytes past the end of array 0",),
    ),
    (
        "@%q0 ld.global.u32 %r0, [%p0+-4];",
        OutOfBoundsError,
        ("4 bytes before the start of array 0",),
    ),
    ("@%q0 ld.global.u64 %x0, [%p0+124];", OutOfBoundsError, ("crosses the end of array 0",)),
    ("@%q0 ld.global.u32 %r0, [%p0+2];", MisalignedAccessError, ("multiple of 4",)),
    ("@%q0 st.global.u32 [%p1], %r0;", ReadOnlyMemoryError, ("array 1", "read-only")),
    ("@%q0 red.global.add.u32 [%p1], 1;", ReadOnlyMemoryError, ("atomic update",)),
    ("mov.u64 %x0, 0; @%q0 ld.u32 %r0, [%x0];", OutOfBoundsError, ("at 0x0",)),
    ("@%q0 trap;", TrapError, ("trap",)),
    ("bar.sync 16;", InvalidOperandError, ("barriers 0 to 15",)),
    ("@%q0 shfl.sync.idx.b32 %r0, %t, 0, 31, 1;", DivergentCollectiveError, ("own lane 7",)),
]


@pytest.mark.parametrize(("text", "error", "words"), BROKEN, ids=[case[0] for case in BROKEN])
def test_a_broken_rule(text: str, error: type[KernelError], words: tuple[str, ...]) -> None:
    arrays = [aligned(32, np.uint32), aligned(32, np.uint32)]
    arrays[1].flags.writeable = False
    ptx = ptx_kernel(ONLY_7 + "BROKEN: " + text, globals_=SMEM)
    with pytest.raises(error) as caught:
        run(compile_kernel(ptx, "kernel"), arrays, grid=3)
    for word in words:
        assert word in caught.value.message
    location = caught.value.location
    assert location.kernel == "kernel"
    assert location.block == (0, 0, 0)
    assert location.thread == ((7 if "@%q0" in text else 0), 0, 0)
    line = next(i for i, row in enumerate(ptx.splitlines(), 1) if "BROKEN" in row)
    assert location.source == f"PTX line {line}"


def test_local_and_parameter_memory_have_bounds() -> None:
    out = aligned(1, np.uint32)
    body = """.local .align 4 .b8 depot[16];
    mov.u64 %x0, depot; cvta.local.u64 %x1, %x0; mov.u32 %r0, 5; st.local.u32 [depot+12], %r0;
    ld.u32 %r1, [%x1+12]; st.global.u32 [%p0], %r1;
    """
    run_ptx(body, [out], block=1)
    assert out[0] == 5
    with pytest.raises(OutOfBoundsError, match="local read of 4 bytes at byte 16 of 16"):
        run_ptx(body + "ld.local.u32 %r1, [%x0+16];", [out], block=1)
    with pytest.raises(OutOfBoundsError, match="past the end of kernel parameters"):
        run_ptx("mov.b64 %x0, p0; ld.param.u64 %x1, [%x0+8];", [out], block=1)
    with pytest.raises(UnsupportedPtxError, match="reads byte 4 of the 8-byte p0"):
        run_ptx("ld.param.u64 %x1, [p0+4];", [out], block=1)


def test_lanes_at_different_shuffles() -> None:
    body = """setp.lt.u32 %q0, %lane, 16;
    @%q0 bra LOW;
    shfl.sync.idx.b32 %r1, %lane, 0, 31, -1;
    bra END;
    LOW: shfl.sync.idx.b32 %r1, %lane, 1, 31, -1;
    END:"""
    with pytest.raises(DivergentCollectiveError, match=r"shfl\.sync with mask 0xffffffff"):
        run_ptx(body, [])


def test_overlapping_masks() -> None:
    body = """setp.lt.u32 %q0, %lane, 8; selp.b32 %r0, 0xFFFF, 0xFF00, %q0;
    vote.sync.any.pred %q1, %q0, %r0;"""
    with pytest.raises(
        DivergentCollectiveError,
        match=r"mask 0x0000ff00, while lanes 0x000000ff .* mask 0x0000ffff at PTX line",
    ):
        run_ptx(body, [], block=16)


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_syncwarp_from_both_branches_is_legal(order: Any) -> None:
    body = """setp.lt.u32 %q0, %lane, 16;
    @%q0 bra LOW;
    bar.warp.sync -1;
    bra END;
    LOW: bar.warp.sync -1;
    END:"""
    run_ptx(body, [], options=LaunchOptions(lane_order=order))


@pytest.mark.parametrize(
    "text",
    [
        "setp.eq.u32 %q0, %lane, 5; @%q0 ret; bar.sync 0;",
        "setp.ne.u32 %q0, %lane, 31; @%q0 bar.sync 0;",
        "setp.lt.u32 %q0, %lane, 16; @%q0 bar.sync 0;\n@!%q0 bar.sync 0;",
        "setp.lt.u32 %q0, %lane, 16; @%q0 bar.sync 0; @!%q0 bar.sync 1;",
        "setp.eq.u32 %q0, %lane, 0; @%q0 ret; mov.u32 %r0, 1024; "
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r0];",
    ],
)
def test_divergence_within_a_warp(text: str) -> None:
    with pytest.raises(DivergentCollectiveError, match="lanes 0x"):
        run_ptx(text, [], SMEM)


def test_a_barrier_that_some_warps_never_reach_is_a_deadlock() -> None:
    body = """setp.lt.u32 %q0, %t, 64;
    @%q0 bar.sync 1;
    @!%q0 bar.sync 2;"""
    with pytest.raises(DeadlockError) as caught:
        run_ptx(body, [], block=96)
    message = caught.value.message
    assert "warps 0 to 1: lanes 0xffffffff wait at bar.sync (barrier 0x1) at PTX line" in message
    assert "warp 2: lanes 0xffffffff wait at bar.sync (barrier 0x2) at PTX line" in message


def test_a_warp_that_has_exited_does_not_hold_up_a_barrier() -> None:
    run_ptx("setp.ge.u32 %q0, %t, 64; @%q0 ret; bar.sync 0;", [], block=96)


def test_named_barriers_count_their_threads() -> None:
    """A producer warp arrives, two consumer warps wait: 96 threads, no more."""
    body = """setp.lt.u32 %q0, %t, 32;
    @%q0 bar.arrive 1, 96;
    @!%q0 bar.sync 1, 96;"""
    run_ptx(body, [], block=96)
    with pytest.raises(DeadlockError):
        run_ptx(body.replace("bar.arrive 1, 96", "bar.arrive 2, 96"), [], block=96)
    with pytest.raises(InvalidOperandError, match="multiples of 32"):
        run_ptx("bar.sync 1, 40;", [], block=96)


def test_barrier_reductions() -> None:
    out = aligned((3, 64), np.uint32)
    body = "setp.lt.u32 %q0, %t, 40; mad.wide.u32 %x0, %t, 4, %p0;\n"
    body += "bar.red.popc.u32 %r0, 0, %q0; st.global.u32 [%x0], %r0;\n"
    for i, operation in ((1, "and"), (2, "or")):
        body += f"bar.red.{operation}.pred %q1, 0, %q0; selp.u32 %r0, 1, 0, %q1;"
        body += f"st.global.u32 [%x0+{i * 256}], %r0;\n"
    run_ptx(body, [out], block=64)
    assert [set(row.tolist()) for row in out] == [{40}, {0}, {1}]


def test_an_endless_loop() -> None:
    with pytest.raises(EndlessLoopError, match="backward branches"):
        run_ptx("LOOP: bra LOOP;", [], options=LaunchOptions(max_backward_branches=1000))


def test_unknown_instructions_are_all_named() -> None:
    ptx = ptx_kernel("tcgen05.wait;\nadd.u32 %r0, %t, 1;\nadd.u32.odd %r0, %t, 1;")
    with pytest.raises(UnsupportedPtxError) as caught:
        compile_kernel(ptx, "kernel")
    lines = dict(enumerate(ptx.splitlines(), 1))
    first = next(i for i, row in lines.items() if "tcgen05" in row)
    assert f"PTX line {first}: tcgen05.wait  (unknown opcode)" in str(caught.value)
    assert f"PTX line {first + 2}: add.u32.odd %r0, %t, 1" in str(caught.value)
    assert "2 PTX instructions" in str(caught.value)


def test_the_source_line_comes_from_loc() -> None:
    source = """__device__ __forceinline__ void broken(int* out, int i) {
  out[i] = i;  // line 2
}
extern "C" __global__ void kernel(int* out) {
  __syncthreads();
  broken(out, threadIdx.x);  // line 6
}
"""
    out = aligned(16, np.int32)
    with pytest.raises(OutOfBoundsError) as caught:
        run(cuda_kernel(source), [out], block=32, grid=2)
    assert "kernel.cu:2, inlined at kernel.cu:6 (PTX line " in caught.value.location.source
    assert caught.value.location.thread == (16, 0, 0)


def test_the_lowest_failing_block_is_reported_however_many_workers() -> None:
    body = "mov.u32 %r0, %ctaid.x; setp.ge.u32 %q0, %r0, 5; @%q0 trap;"
    for workers in (1, 2, 8):
        with pytest.raises(TrapError) as caught:
            run_ptx(body, [], grid=64, options=LaunchOptions(workers=workers))
        assert caught.value.location.block == (5, 0, 0)


def test_launch_arguments_are_checked() -> None:
    kernel = compile_kernel(ptx_kernel("", parameters=1), "kernel")
    with pytest.raises(
        InvalidLaunchError, match=r"parameters of \(4,\) bytes given, \(8,\) expected"
    ):
        kernel.launch((1, 1, 1), (1, 1, 1), 0, [bytes(4)], [])
    with pytest.raises(InvalidLaunchError, match="at most 1024 threads"):
        kernel.launch((1, 1, 1), (1025, 1, 1), 0, [bytes(8)], [])
    with pytest.raises(InvalidLaunchError, match="dynamic"):
        kernel.launch((1, 1, 1), (1, 1, 1), 1 << 20, [bytes(8)], [])
    with pytest.raises(InvalidLaunchError, match="not contiguous"):
        memory_range_of(np.zeros((4, 4))[:, ::2], "view")


def test_a_missing_entry_names_those_present() -> None:
    with pytest.raises(Exception, match=r"no entry 'other'.*kernel"):
        compile_kernel(ptx_kernel(""), "other")
    with pytest.raises(Exception, match="its entries: none"):
        compile_kernel(HEADER, "kernel")
