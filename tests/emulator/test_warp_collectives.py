"""Shuffles, votes, reductions, ldmatrix and mma: exact semantics for every lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import compile_kernel

from .support import aligned, ptx_kernel, run, run_ptx

LANES = np.arange(32)
STORE = "mad.wide.u32 %x1, %t, 4, %p1; st.global.b32 [%x1], %r1;"


def _shuffle_reference(mode: str, values: Any, b: int, c: int) -> tuple[Any, Any]:
    """The pseudo-code of the PTX ISA."""
    clamp, segment = c & 31, c >> 8 & 31
    results, valid = [], []
    for lane in range(32):
        high = lane & segment | clamp & ~segment & 31
        low = lane & segment
        source = {
            "up": lane - b,
            "down": lane + b,
            "bfly": lane ^ b,
            "idx": low | b & ~segment & 31,
        }[mode]
        ok = source >= high if mode == "up" else source <= high
        results.append(values[source if ok else lane])
        valid.append(ok)
    return np.array(results), np.array(valid)


SHUFFLES = [
    (mode, b, segment << 8 | (0 if mode == "up" else 31))
    for mode in ("up", "down", "bfly", "idx")
    for b in (0, 1, 5, 16, 31)
    for segment in (0, 0b11000, 0b11100)
]


def test_shuffles() -> None:
    body = "add.u32 %r9, %lane, 100;\n"
    for i, (mode, b, c) in enumerate(SHUFFLES):
        body += f"shfl.sync.{mode}.b32 %r1|%q1, %r9, {b}, {c}, -1; selp.u32 %r2, 1, 0, %q1;"
        body += f"mad.wide.u32 %x1, %t, 8, %p0; st.global.v2.b32 [%x1+{i * 256}], {{%r1, %r2}};\n"
    out = aligned((len(SHUFFLES), 32, 2), np.uint32)
    run_ptx(body, [out])
    for (mode, b, c), actual in zip(SHUFFLES, out, strict=True):
        values, valid = _shuffle_reference(mode, LANES + 100, b, c)
        np.testing.assert_array_equal(actual[:, 0], values, err_msg=f"{mode} {b} {c:#x}")
        np.testing.assert_array_equal(actual[:, 1], valid, err_msg=f"{mode} {b} {c:#x}")


def test_half_warps_shuffle_in_different_branches() -> None:
    out = aligned(32, np.uint32)
    body = """
    setp.lt.u32 %q0, %lane, 16;
    @%q0 bra LOW;
    shfl.sync.idx.b32 %r1, %lane, 20, 31, 0xFFFF0000;
    bra END;
    LOW: shfl.sync.idx.b32 %r1, %lane, 3, 31, 0x0000FFFF;
    END: mad.wide.u32 %x1, %t, 4, %p0; st.global.b32 [%x1], %r1;"""
    run_ptx(body, [out])
    np.testing.assert_array_equal(out, np.where(LANES < 16, 3, 20))


def test_a_shuffle_from_an_absent_lane_yields_poison() -> None:
    out = aligned(16, np.uint32)
    body = "shfl.sync.down.b32 %r1, %lane, 8, 31, 0xFFFF; mad.wide.u32 %x1, %t, 4, %p0;"
    run_ptx(body + "st.global.b32 [%x1], %r1;", [out], block=16)
    np.testing.assert_array_equal(out, [*range(8, 16), *[0xFFFFFFFF] * 8])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vote.sync.ballot.b32 %r1, %q0, -1;", 0x00000FF8),
        ("vote.sync.any.pred %q1, %q0, -1; selp.u32 %r1, 1, 0, %q1;", 1),
        ("vote.sync.all.pred %q1, %q0, -1; selp.u32 %r1, 1, 0, %q1;", 0),
        ("vote.sync.uni.pred %q1, %q0, -1; selp.u32 %r1, 1, 0, %q1;", 0),
        ("redux.sync.add.s32 %r1, %lane, -1;", 31 * 16),
        ("redux.sync.max.u32 %r1, %lane, -1;", 31),
        ("redux.sync.xor.b32 %r1, %lane, -1;", 0),
    ],
)
def test_votes_and_reductions(text: str, expected: int) -> None:
    out = aligned(32, np.uint32)
    body = "sub.u32 %r0, %lane, 3; setp.lt.u32 %q0, %r0, 9;\n" + text
    run_ptx(body + "mad.wide.u32 %x1, %t, 4, %p0; st.global.b32 [%x1], %r1;", [out])
    assert set(out.tolist()) == {expected}


def _ldmatrix_kernel() -> str:
    """Copies 4 matrices to shared memory and loads them in all six ways."""
    body = """
    mad.wide.u32 %x0, %t, 16, %p0;
    ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%x0];
    mov.u32 %r10, smem;
    shl.b32 %r11, %lane, 4;
    add.u32 %r10, %r10, %r11;
    st.shared.v4.b32 [%r10], {%r0, %r1, %r2, %r3};
    bar.warp.sync -1;
    mad.wide.u32 %x1, %t, 4, %p1;
    """
    row = 0
    for trans in ("", ".trans"):
        for count in (1, 2, 4):
            registers = ", ".join(f"%r{20 + i}" for i in range(count))
            body += (
                f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%r10];"
            )
            for i in range(count):
                body += f"st.global.b32 [%x1+{row * 128}], %r{20 + i};\n"
                row += 1
    return ptx_kernel(body, globals_=".extern .shared .align 16 .b8 smem[];")


def test_ldmatrix() -> None:
    matrices = aligned((4, 8, 8), np.uint16)
    matrices[:] = np.arange(256).reshape(4, 8, 8)
    out = aligned((14, 32), np.uint32)
    report = run(compile_kernel(_ldmatrix_kernel(), "kernel"), [matrices, out], shared_bytes=512)
    assert report.collectives["ldmatrix"] == 6
    expected = []
    for source in (matrices, matrices.transpose(0, 2, 1)):
        for count in (1, 2, 4):
            for matrix in source[:count]:
                # Lane l holds elements 2(l%4) and 2(l%4)+1 of row l/4.
                expected.append(np.ascontiguousarray(matrix).view(np.uint32).reshape(32))
    np.testing.assert_array_equal(out, expected)


def mma_kernel(dtype: str) -> str:
    """One warp: fragments are built element by element from row-major A, B and C."""
    body = "shr.u32 %r50, %lane, 2; and.b32 %r51, %lane, 3; shl.b32 %r51, %r51, 1;\n"
    body += "mad.lo.u32 %r52, %r50, 16, %r51; mul.wide.u32 %x0, %r52, 2; add.u64 %x0, %x0, %p0;\n"
    for i, offset in enumerate((0, 8 * 16, 8, 8 * 16 + 8)):  # A: 16 x 16
        body += f"ld.global.b32 %r{i}, [%x0+{offset * 2}];\n"
    body += "mad.lo.u32 %r53, %r51, 8, %r50; mul.wide.u32 %x1, %r53, 2; add.u64 %x1, %x1, %p1;\n"
    for i in range(2):  # B: 16 x 8
        body += f"ld.global.b16 %h0, [%x1+{i * 128}]; ld.global.b16 %h1, [%x1+{i * 128 + 16}];"
        body += f"mov.b32 %r{4 + i}, {{%h0, %h1}};\n"
    body += "mad.lo.u32 %r54, %r50, 8, %r51; mul.wide.u32 %x2, %r54, 4; add.u64 %x2, %x2, %p2;\n"
    body += "ld.global.v2.f32 {%f0, %f1}, [%x2]; ld.global.v2.f32 {%f2, %f3}, [%x2+256];\n"
    body += f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32 {{%f4, %f5, %f6, %f7}}, "
    body += "{%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};\n"
    # A second one that depends on the first, then two independent ones.
    for d, c in ((8, 4), (12, 8), (16, 4)):
        results = ", ".join(f"%f{d + i}" for i in range(4))
        sums = ", ".join(f"%f{c + i}" for i in range(4))
        body += f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32 {{{results}}}, "
        body += f"{{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{{sums}}};\n"
    for i, d in enumerate((4, 8, 12, 16)):
        body += "mul.wide.u32 %x3, %r54, 4; add.u64 %x3, %x3, %p3;"
        body += f"st.global.v2.f32 [%x3+{i * 512}], {{%f{d}, %f{d + 1}}};"
        body += f"st.global.v2.f32 [%x3+{i * 512 + 256}], {{%f{d + 2}, %f{d + 3}}};\n"
    return ptx_kernel(body, parameters=4)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_mma(dtype: str) -> None:
    rng = np.random.default_rng(7)
    floats = [rng.standard_normal(shape).astype(np.float32) for shape in ((16, 16), (16, 8))]
    bits = [aligned((16, 16), np.uint16), aligned((16, 8), np.uint16)]
    exact = []
    for values, target in zip(floats, bits, strict=True):
        if dtype == "f16":
            target[:] = values.astype(np.float16).view(np.uint16)
            exact.append(target.view(np.float16).astype(np.float64))
        else:
            target[:] = (values.view(np.uint32) >> 16).astype(np.uint16)
            exact.append((target.astype(np.uint32) << 16).view(np.float32).astype(np.float64))
    c, out = aligned((16, 8), np.float32), aligned((4, 16, 8), np.float32)
    c[:] = rng.standard_normal((16, 8))
    report = run(compile_kernel(mma_kernel(dtype), "kernel"), [*bits, c, out])
    product = exact[0] @ exact[1]
    for actual, multiple in zip(out, (1, 2, 3, 2), strict=True):
        np.testing.assert_allclose(actual, c + multiple * product, rtol=0, atol=2e-5)
    assert report.mma_instructions == 4


def test_mma_sums_in_f32_and_propagates_nan() -> None:
    bits = [aligned((16, 16), np.uint16), aligned((16, 8), np.uint16)]
    bits[0][:], bits[1][:] = np.float16(1).view(np.uint16), np.float16(1).view(np.uint16)
    bits[0][3, 5] = 0x7E00
    c, out = aligned((16, 8), np.float32), aligned((4, 16, 8), np.float32)
    c[:] = 2.0**24 - 16  # 16 more is exact in f32 and far beyond f16
    run(compile_kernel(mma_kernel("f16"), "kernel"), [*bits, c, out])
    assert np.isnan(out[0][3]).all()
    assert (np.delete(out[0], 3, axis=0) == 2.0**24).all()
