"""Scalar instructions against numpy, on edge values. One kernel holds all of them: compiling is
what costs time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import compile_kernel

from .scalar_reference import (
    add_toward_zero,
    bf16,
    bfe,
    bfi,
    bits32,
    bits64,
    each,
    f16,
    fma,
    ftz,
    half_op,
    half_toward_zero,
    lop3,
    maximum,
    minimum,
    pack,
    prmt,
    signed,
    signed_int,
    to_int,
    wide,
)
from .support import aligned, ptx_kernel, run

U32_EDGES = [0, 1, 2, 3, 7, 31, 32, 33, 255, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF,
             0xFFFFFFFE, 0x12345678, 0xDEADBEEF]  # fmt: skip
U64_EDGES = [0, 1, 2, 3, 63, 64, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 63) + 1,
             (1 << 64) - 1, (1 << 64) - 2, 0x123456789ABCDEF0, 0xDEADBEEFCAFEF00D,
             5_000_000_000]  # fmt: skip
F32_EDGES = [0.0, -0.0, 1.0, -1.5, 2.5, -3.5, 0.1, 65504.0, 65520.0, 6e-8, 1e-40, -1e-41, 3e38,
             float("inf"), float("-inf"), float("nan")]  # fmt: skip
N = 256
BLOCK = np.arange(N)


def _grid(edges: Any, dtype: Any) -> tuple[Any, Any, Any]:
    values = np.array(edges, dtype)
    return values[BLOCK % 16], values[BLOCK // 16], values[(BLOCK * 5 + BLOCK // 16) % 16]


U32S, U64S, F32S = _grid(U32_EDGES, np.uint32), _grid(U64_EDGES, np.uint64), _grid(F32_EDGES, "f4")
F64S = tuple(value.astype(np.float64) * 1.1 for value in F32S)


@dataclass(frozen=True)
class Case:
    ptx: str  # with $d, $a, $b, $c
    inputs: str  # "r" (b32), "x" (b64), "f" (f32), "d" (f64)
    result: str
    expected: Callable[..., Any]
    ulp: float = 0.0

    @property
    def id(self) -> str:
        return self.ptx.split(";")[0]


INTEGER = [
    Case("add.s32 $d, $a, $b;", "r", "b32", lambda a, b: a + b),
    Case("sub.u32 $d, $a, $b;", "r", "b32", lambda a, b: a - b),
    Case("add.s64 $d, $a, $b;", "x", "b64", lambda a, b: a + b),
    Case("add.sat.s32 $d, $a, $b;", "r", "b32",
         lambda a, b: bits32(np.clip(wide(signed(a)) + wide(signed(b)), -(2**31), 2**31 - 1))),
    Case("mul.lo.s32 $d, $a, $b;", "r", "b32", lambda a, b: a * b),
    Case("mul.hi.s32 $d, $a, $b;", "r", "b32",
         lambda a, b: bits32((wide(signed(a)) * wide(signed(b))) >> 32)),
    Case("mul.hi.u32 $d, $a, $b;", "r", "b32", lambda a, b: bits32((wide(a) * wide(b)) >> 32)),
    Case("mul.hi.u64 $d, $a, $b;", "x", "b64", lambda a, b: bits64((wide(a) * wide(b)) >> 64)),
    Case("mul.wide.s32 $d, $a, $b;", "r", "b64",
         lambda a, b: bits64(wide(signed(a)) * wide(signed(b)))),
    Case("mul.wide.u32 $d, $a, $b;", "r", "b64", lambda a, b: bits64(wide(a) * wide(b))),
    Case("mad.lo.s32 $d, $a, $b, $c;", "r", "b32", lambda a, b, c: a * b + c),
    Case("mad.lo.s64 $d, $a, $b, $c;", "x", "b64", lambda a, b, c: a * b + c),
    Case("div.s32 $d, $a, $b;", "r", "b32",
         each(lambda a, b: -1 if b == 0 else int(abs(signed_int(a)) // abs(signed_int(b)))
               * (1 if (a ^ b) >> 31 == 0 else -1))),
    Case("rem.u32 $d, $a, $b;", "r", "b32", each(lambda a, b: a if b == 0 else a % b)),
    Case("min.s32 $d, $a, $b;", "r", "b32",
         lambda a, b: np.minimum(signed(a), signed(b)).view(np.uint32)),
    Case("max.u32 $d, $a, $b;", "r", "b32", np.maximum),
    Case("neg.s32 $d, $a;", "r", "b32", lambda a: -a),
    Case("abs.s32 $d, $a;", "r", "b32", lambda a: bits32(np.abs(wide(signed(a))))),
    Case("and.b32 $d, $a, $b;", "r", "b32", np.bitwise_and),
    Case("not.b64 $d, $a;", "x", "b64", np.bitwise_not),
    Case("lop3.b32 $d, $a, $b, $c, 0xE8;", "r", "b32", lambda a, b, c: a & b | a & c | b & c),
    Case("lop3.b32 $d, $a, $b, $c, 0x1D;", "r", "b32",
         each(lambda a, b, c: lop3(a, b, c, 0x1D))),
    Case("shl.b32 $d, $a, $b;", "r", "b32", each(lambda a, b: a << b if b < 32 else 0)),
    Case("shr.u32 $d, $a, $b;", "r", "b32", each(lambda a, b: a >> b if b < 32 else 0)),
    Case("shr.s32 $d, $a, $b;", "r", "b32", each(lambda a, b: signed_int(a) >> min(b, 31))),
    Case("shf.l.wrap.b32 $d, $a, $b, $c;", "r", "b32",
         each(lambda a, b, c: (b << 32 | a) << (c & 31) >> 32)),
    Case("shf.r.clamp.b32 $d, $a, $b, $c;", "r", "b32",
         each(lambda a, b, c: (b << 32 | a) >> min(c, 32))),
    Case("bfe.u32 $d, $a, $b, $c;", "r", "b32", each(lambda a, b, c: bfe(a, b, c, False))),
    Case("bfe.s32 $d, $a, $b, $c;", "r", "b32", each(lambda a, b, c: bfe(a, b, c, True))),
    Case("bfi.b32 $d, $a, $b, $c, 7;", "r", "b32", each(lambda a, b, c: bfi(a, b, c, 7))),
    Case("prmt.b32 $d, $a, $b, 0x9C41;", "r", "b32", each(lambda a, b: prmt(a, b, 0x9C41))),
    Case("popc.b32 $d, $a;", "r", "b32", each(lambda a: a.bit_count())),
    Case("clz.b32 $d, $a;", "r", "b32", each(lambda a: 32 - a.bit_length())),
    Case("clz.b64 $d, $a;", "x", "b32", each(lambda a: 64 - a.bit_length())),
    Case("brev.b32 $d, $a;", "r", "b32", each(lambda a: int(f"{a:032b}"[::-1], 2))),
    Case("bfind.s32 $d, $a;", "r", "b32",
         each(lambda a: (~a & 0xFFFFFFFF if a >> 31 else a).bit_length() - 1)),
    Case("cvt.s64.s32 $d, $a;", "r", "b64", lambda a: bits64(signed(a))),
    Case("cvt.u64.u32 $d, $a;", "r", "b64", lambda a: a.astype(np.uint64)),
    Case("cvt.u32.u64 $d, $a;", "x", "b32", lambda a: a.astype(np.uint32)),
    Case("cvt.s32.s8 $d, $a;", "r", "b32", lambda a: bits32(a.astype(np.int8))),
    Case("cvt.sat.s8.s32 $d, $a;", "r", "b32", lambda a: bits32(np.clip(signed(a), -128, 127))),
]  # fmt: skip

COMPARE = [
    Case(f"setp.{op}.{t} %q0, $a, $b; selp.b32 $d, 1, 0, %q0;", kind, "b32", function)
    for op, t, kind, function in [
        ("lt", "s32", "r", lambda a, b: signed(a) < signed(b)),
        ("lo", "u32", "r", lambda a, b: a < b),
        ("hs", "u32", "r", lambda a, b: a >= b),
        ("ge", "s64", "x", lambda a, b: signed(a) >= signed(b)),
        ("eq", "f32", "f", lambda a, b: a == b),
        ("ne", "f32", "f", lambda a, b: (a != b) & ~np.isnan(a) & ~np.isnan(b)),
        ("neu", "f32", "f", lambda a, b: a != b),
        ("equ", "f32", "f", lambda a, b: (a == b) | np.isnan(a) | np.isnan(b)),
        ("ltu", "f32", "f", lambda a, b: ~(a >= b)),
        ("geu", "f32", "f", lambda a, b: ~(a < b)),
        ("num", "f32", "f", lambda a, b: ~np.isnan(a) & ~np.isnan(b)),
        ("nan", "f32", "f", lambda a, b: np.isnan(a) | np.isnan(b)),
        ("gt", "f64", "d", lambda a, b: a > b),
    ]
]

FLOAT = [
    Case("add.f32 $d, $a, $b;", "f", "f32", np.add),
    Case("sub.ftz.f32 $d, $a, $b;", "f", "f32", lambda a, b: ftz(ftz(a) - ftz(b))),
    Case("mul.rn.f32 $d, $a, $b;", "f", "f32", np.multiply),
    Case("add.sat.f32 $d, $a, $b;", "f", "f32",
         lambda a, b: np.where(a + b > 0, np.minimum(a + b, 1), np.float32(0))),
    Case("fma.rn.f32 $d, $a, $b, $c;", "f", "f32", fma),
    Case("fma.rn.f64 $d, $a, $b, $c;", "d", "f64",
         lambda a, b, c: (a.astype(np.longdouble) * b + c).astype(np.float64), ulp=1),
    Case("add.rz.f32 $d, $a, $b;", "f", "f32",
         add_toward_zero),
    Case("div.rn.f32 $d, $a, $b;", "f", "f32", np.divide),
    Case("min.f32 $d, $a, $b;", "f", "f32", minimum),
    Case("max.f32 $d, $a, $b;", "f", "f32", maximum),
    Case("max.NaN.f32 $d, $a, $b;", "f", "f32",
         lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.float32("nan"), maximum(a, b))),
    Case("neg.f32 $d, $a;", "f", "f32", np.negative),
    Case("abs.f32 $d, $a;", "f", "f32", np.abs),
    Case("copysign.f32 $d, $a, $b;", "f", "f32", lambda a, b: np.copysign(b, a)),
    Case("sqrt.rn.f32 $d, $a;", "f", "f32", np.sqrt),
    Case("rcp.rn.f32 $d, $a;", "f", "f32", lambda a: np.float32(1) / a),
    Case("rcp.approx.ftz.f32 $d, $a;", "f", "f32", lambda a: ftz(np.float32(1) / ftz(a)), ulp=1),
    Case("ex2.approx.ftz.f32 $d, $a;", "f", "f32", lambda a: ftz(np.exp2(ftz(a))), ulp=2),
    Case("lg2.approx.f32 $d, $a;", "f", "f32", np.log2, ulp=2),
    Case("add.f64 $d, $a, $b;", "d", "f64", np.add),
    Case("cvt.rzi.s32.f32 $d, $a;", "f", "b32",
         lambda a: to_int(a, -(2**31), 2**31 - 1, np.trunc)),
    Case("cvt.rni.u32.f32 $d, $a;", "f", "b32", lambda a: to_int(a, 0, 2**32 - 1, np.rint)),
    Case("cvt.rmi.f32.f32 $d, $a;", "f", "f32", np.floor),
    Case("cvt.rn.f32.s32 $d, $a;", "r", "f32", lambda a: signed(a).astype(np.float32)),
    Case("cvt.rn.f32.u64 $d, $a;", "x", "f32", lambda a: a.astype(np.float32)),
    Case("cvt.rn.f32.f64 $d, $a;", "d", "f32", lambda a: a.astype(np.float32)),
    Case("cvt.f64.f32 $d, $a;", "f", "f64", lambda a: a.astype(np.float64)),
    Case("cvt.rna.tf32.f32 $d, $a;", "f", "b32",
         lambda a: np.where(np.isnan(a), 0x7FFFFFFF, a.view(np.uint32) + 0x1000 & 0xFFFFE000)),
    Case("cvt.rn.f16x2.f32 $d, $a, $b;", "f", "b32", lambda a, b: pack(f16(a), f16(b))),
    Case("cvt.rn.bf16x2.f32 $d, $a, $b;", "f", "b32", lambda a, b: pack(bf16(a), bf16(b))),
    Case("{ .reg .b16 h; cvt.rn.f16.f32 h, $a; cvt.f32.f16 $d, h; }", "f", "f32",
         lambda a: a.astype(np.float16).astype(np.float32)),
    Case("{ .reg .b16 h; cvt.rz.f16.f32 h, $a; cvt.u32.u16 $d, h; }", "f", "b32",
         half_toward_zero),
    Case("{ .reg .b16 l, h; mov.b32 {l, h}, $a; mov.b32 $d, {h, l}; }", "r", "b32",
         lambda a: a >> 16 | a << 16),
    Case("{ .reg .b32 l, h; mov.b64 {l, h}, $a; add.u32 $d, l, h; }", "x", "b32",
         lambda a: a.astype(np.uint32) + (a >> np.uint64(32)).astype(np.uint32)),
    Case("add.f16x2 $d, $a, $b;", "r", "f16x2", half_op(lambda a, b: a + b)),
    Case("mul.f16x2 $d, $a, $b;", "r", "f16x2", half_op(lambda a, b: a * b)),
    Case("fma.rn.f16x2 $d, $a, $b, $c;", "r", "f16x2",
         half_op(lambda a, b, c: a.astype(np.longdouble) * b + c)),
]  # fmt: skip

CASES = INTEGER + COMPARE + FLOAT
INPUTS = {"r": U32S, "x": U64S, "f": F32S, "d": F64S}
RESULT_REGISTER = {"b32": "%r90", "b64": "%x90", "f32": "%f90", "f64": "%d9", "f16x2": "%r90"}


def _all_cases_ptx() -> str:
    lines = []
    for i, kind in enumerate("rxfd"):
        size, load = {"r": (4, "u32"), "x": (8, "u64"), "f": (4, "f32"), "d": (8, "f64")}[kind]
        lines.append(f"mul.wide.u32 %x80, %t, {size}; add.u64 %x81, %p{i}, %x80;")
        for j in range(3):
            lines.append(f"ld.global.{load} %{kind}{j}, [%x81+{j * N * size}];")
    for index, case in enumerate(CASES):
        text = case.ptx.replace("$d", RESULT_REGISTER[case.result])
        for j, letter in enumerate("abc"):
            text = text.replace(f"${letter}", f"%{case.inputs}{j}")
        store = {"f16x2": "b32"}.get(case.result, case.result)
        lines.append(text)
        lines.append(
            f"mad.wide.u32 %x80, %t, 8, %p4; "
            f"st.global.{store} [%x80+{index * N * 8}], {RESULT_REGISTER[case.result]};"
        )
    return ptx_kernel("\n".join(lines), parameters=5)


@pytest.fixture(scope="module")
def results() -> Any:
    arrays = []
    for kind in "rxfd":
        values = np.concatenate(INPUTS[kind])
        arrays.append(aligned(values.shape, values.dtype))
        arrays[-1][:] = values
    out = aligned((len(CASES), N), np.uint64)
    run(compile_kernel(_all_cases_ptx(), "kernel"), [*arrays, out], block=N)
    return out


@pytest.mark.parametrize("index", range(len(CASES)), ids=[case.id for case in CASES])
def test_instruction(index: int, results: Any) -> None:
    case = CASES[index]
    n_operands = sum(f"${letter}" in case.ptx for letter in "abc")
    dtype = {
        "b32": np.uint32,
        "b64": np.uint64,
        "f32": np.float32,
        "f64": np.float64,
        "f16x2": np.uint32,
    }[case.result]
    actual = np.ascontiguousarray(results[index].view(dtype)[:: 8 // np.dtype(dtype).itemsize])
    with np.errstate(all="ignore"):
        expected = np.asarray(case.expected(*INPUTS[case.inputs][:n_operands])).astype(dtype)
    if case.result == "f16x2":
        _assert_same_floats(actual.view(np.float16), expected.view(np.float16), 0)
    elif case.result.startswith("f"):
        _assert_same_floats(actual, expected, case.ulp)
    else:
        np.testing.assert_array_equal(actual, expected)


def _assert_same_floats(actual: Any, expected: Any, ulp: float) -> None:
    assert (np.isnan(actual) == np.isnan(expected)).all()
    numbers = ~np.isnan(expected)
    if ulp == 0:
        integers = {2: np.uint16, 4: np.uint32, 8: np.uint64}[actual.itemsize]
        np.testing.assert_array_equal(
            actual[numbers].view(integers), expected[numbers].view(integers)
        )
        return
    np.testing.assert_array_equal(np.signbit(actual[numbers]), np.signbit(expected[numbers]))
    with np.errstate(all="ignore"):
        difference = np.abs(actual[numbers].astype(np.float64) - expected[numbers])
        limit = ulp * np.abs(np.spacing(expected[numbers])).astype(np.float64)
    infinite = np.isinf(expected[numbers])
    assert (actual[numbers][infinite] == expected[numbers][infinite]).all()
    assert (difference[~infinite] <= limit[~infinite]).all()
