"""Scalar instructions against numpy and Python integers, on the inputs of the conformance suite:
independent of what any GPU answered."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from .conformance.compare import mismatches
from .conformance.emulated import outputs
from .conformance.micro_kernel import Case
from .conformance.suite import all_cases
from .conformance.values import OPERANDS
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
    maximum,
    minimum,
    pack,
    signed,
    signed_int,
    to_int,
    wide,
)

CASES = {case.key: (kernels, case) for kernels, case in all_cases()}
S32, U32 = (-(2**31), 2**31 - 1), (0, 2**32 - 1)
ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}

INTEGER: dict[str, Callable[..., Any]] = {
    "add.s32": lambda a, b: a + b,
    "sub.u32": lambda a, b: a - b,
    "add.s64": lambda a, b: a + b,
    "mul.lo.s32": lambda a, b: a * b,
    "mul.lo.s64": lambda a, b: a * b,
    "mul.hi.s32": lambda a, b: bits32((wide(signed(a)) * wide(signed(b))) >> 32),
    "mul.hi.u32": lambda a, b: bits32((wide(a) * wide(b)) >> 32),
    "mul.hi.u64": lambda a, b: bits64((wide(a) * wide(b)) >> 64),
    "mul.wide.s32": lambda a, b: bits64(wide(signed(a)) * wide(signed(b))),
    "mul.wide.u32": lambda a, b: bits64(wide(a) * wide(b)),
    "mad.lo.s32": lambda a, b, c: a * b + c,
    "mad.lo.s64": lambda a, b, c: a * b + c,
    "mad.wide.s32": lambda a, b, c: bits64(wide(signed(a)) * wide(signed(b)) + wide(c)),
    "mad.wide.u32": lambda a, b, c: bits64(wide(a) * wide(b) + wide(c)),
    "div.s32": each(lambda a, b: -1 if b == 0 else int(abs(signed_int(a)) // abs(signed_int(b)))
                    * (1 if (a ^ b) >> 31 == 0 else -1)),
    "div.u32": each(lambda a, b: -1 if b == 0 else a // b),
    "min.s32": lambda a, b: np.minimum(signed(a), signed(b)).view(np.uint32),
    "max.u32": np.maximum,
    "neg.s32": lambda a: -a,
    "neg.s64": lambda a: -a,
    "abs.s32": lambda a: bits32(np.abs(wide(signed(a)))),
    "and.b32": np.bitwise_and,
    "or.b32": np.bitwise_or,
    "xor.b32": np.bitwise_xor,
    "not.b64": np.bitwise_not,
    "shl.b32": each(lambda a, b: a << b if b < 32 else 0),
    "shl.b64": lambda a, b: bits64(int(x) << int(n) if n < 64 else 0
                                   for x, n in zip(a, b, strict=True)),
    "shr.u32": each(lambda a, b: a >> b if b < 32 else 0),
    "shr.s32": each(lambda a, b: signed_int(a) >> min(b, 31)),
    "shf.l.wrap.b32": each(lambda a, b, c: (b << 32 | a) << (c & 31) >> 32),
    "shf.r.clamp.b32": each(lambda a, b, c: (b << 32 | a) >> min(c, 32)),
    "bfe.u32": each(lambda a, b, c: bfe(a, b, c, False)),
    "bfe.s32": each(lambda a, b, c: bfe(a, b, c, True)),
    "bfi.b32": each(lambda a, b, c: bfi(a, b, c, 7)),
    "popc.b32": each(lambda a: a.bit_count()),
    "clz.b32": each(lambda a: 32 - a.bit_length()),
    "clz.b64": each(lambda a: 64 - a.bit_length()),
    "mov.b32 unpack": lambda a: a >> 16,
    "mov.b64 unpack": lambda a: (a >> np.uint64(32)).astype(np.uint32) - a.astype(np.uint32),
    "cvt.s64.s32": lambda a: bits64(signed(a)),
    "cvt.u64.u32": lambda a: a.astype(np.uint64),
    "cvt.u32.u64": lambda a: a.astype(np.uint32),
    "cvt.s32.s8": lambda a: bits32(a.astype(np.int8)),
}  # fmt: skip

_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: (a < b) | (a > b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lo": lambda a, b: a < b,
    "hs": lambda a, b: a >= b,
    "equ": lambda a, b: ~((a < b) | (a > b)),
    "neu": lambda a, b: a != b,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: ~np.isnan(a) & ~np.isnan(b),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}


def _relation(form: str) -> Callable[..., Any] | None:
    """What setp.RELATION.TYPE computes."""
    parts = form.split(".")
    if parts[0] != "setp" or len(parts) != 3 or parts[1] not in _RELATIONS or "16" in parts[2]:
        return None
    convert = signed if parts[2][0] == "s" else lambda x: x
    relation = _RELATIONS[parts[1]]
    return lambda a, b: relation(convert(a), convert(b))


COMPARE = {form: function for form in CASES if (function := _relation(form))}

FLOAT: dict[str, Callable[..., Any]] = {
    "add.f32": np.add,
    "sub.ftz.f32": lambda a, b: ftz(ftz(a) - ftz(b)),
    "mul.f32": np.multiply,
    "mul.rn.f32": np.multiply,
    "add.sat.f32": lambda a, b: np.where(a + b > 0, np.minimum(a + b, 1), np.float32(0)),
    "fma.rn.f32": fma,
    "add.rz.f32": add_toward_zero,
    "div.rn.f32": np.divide,
    "div.full.f32": np.divide,
    "min.f32": minimum,
    "max.f32": maximum,
    "neg.f32": np.negative,
    "abs.f32": np.abs,
    "copysign.f32": lambda a, b: np.copysign(b, a),
    "sqrt.rn.f32": np.sqrt,
    "rcp.rn.f32": lambda a: np.float32(1) / a,
    "rcp.approx.ftz.f32": lambda a: ftz(np.float32(1) / ftz(a)),
    "ex2.approx.ftz.f32": lambda a: ftz(np.exp2(ftz(a))),
    "ex2.approx.f32": np.exp2,
    "lg2.approx.f32": np.log2,
    "lg2.approx.ftz.f32": lambda a: np.log2(ftz(a)),
    "add.f64": np.add,
    **{f"cvt.{r}.s32.f32": lambda a, r=r: to_int(a, *S32, ROUND[r]) for r in ROUND},
    "cvt.rni.u32.f32": lambda a: to_int(a, *U32, np.rint),
    "cvt.rmi.f32.f32": np.floor,
    "cvt.rn.f32.s32": lambda a: signed(a).astype(np.float32),
    "cvt.rn.f32.u64": lambda a: a.astype(np.float32),
    "cvt.rn.f32.f64": lambda a: a.astype(np.float32),
    "cvt.f64.f32": lambda a: a.astype(np.float64),
    "cvt.rna.tf32.f32": lambda a: (a.view(np.uint32) + np.where(np.isnan(a), 0, 0x1000)
                                   .astype(np.uint32)) & np.uint32(0xFFFFE000),
    "cvt.rn.f16x2.f32": lambda a, b: pack(f16(a), f16(b)),
    "cvt.rn.bf16x2.f32": lambda a, b: pack(bf16(a), bf16(b)),
    "cvt.rn.f16.f32": f16,
    "cvt.rn.bf16.f32": bf16,
    "cvt.f32.f16": lambda a: a.view(np.float16).astype(np.float32),
    "add.f16x2": half_op(lambda a, b: a + b),
    "mul.f16x2": half_op(lambda a, b: a * b),
    "fma.rn.f16x2": half_op(lambda a, b, c: a.astype(np.longdouble) * b + c),
}  # fmt: skip

EXPECTED = INTEGER | COMPARE | FLOAT


def _operands(case: Case) -> list[Any]:
    return [
        OPERANDS[kind]["abc".index(name)]
        for kind, name in re.findall(r"%([rxfdhv])([abc])\b", case.text)
    ]


@pytest.mark.parametrize("key", EXPECTED)
def test_instruction(key: str) -> None:
    kernels, case = CASES[key]
    operands = _operands(case)
    with np.errstate(all="ignore"):
        expected = np.asarray(EXPECTED[key](*operands)).astype(case.dtype)
    actual = kernels.result(outputs()[kernels.entry], case)
    wrong = mismatches(replace(case, any_nan=True), actual, expected)  # numpy's NaN are its own
    shown = [
        ([hex(o[i]) if o.dtype.kind == "u" else o[i] for o in operands], actual[i], expected[i])
        for i in wrong[:5]
    ]
    assert not len(wrong), f"{len(wrong)} of {case.count}: operands, actual, expected: {shown}"
