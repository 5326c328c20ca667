"""The scalar forms that have a micro-kernel, by number of operands. What a form's operands are
follows from its opcode and types: see scalar_kernels.py."""

from __future__ import annotations

from .micro_kernel import words

_FLOAT_ROUNDINGS = ("rn", "rz", "rm", "rp")
_ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
_UNORDERED = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")

UNARY = [
    *words("mov.b32 mov.b64 mov.u32 mov.u64 mov.f32 mov.f64 mov.b16 mov.s32"),
    *words("neg.f32 neg.ftz.f32 neg.f64 neg.f16 neg.f16x2 neg.s32 neg.s64"),
    *words("abs.f32 abs.ftz.f32 abs.f64 abs.f16 abs.f16x2 abs.s32 abs.s64"),
    *words("not.b16 not.b32 not.b64 popc.b32 popc.b64 clz.b32 clz.b64"),
    *words("rcp.approx.ftz.f32 rcp.approx.f32 ex2.approx.ftz.f32 ex2.approx.f32"),
    *words("lg2.approx.ftz.f32 lg2.approx.f32 rsqrt.approx.ftz.f32 rsqrt.approx.f32"),
    *words("sqrt.approx.ftz.f32 sqrt.approx.f32 sin.approx.f32 cos.approx.f32 tanh.approx.f32"),
    *(f"{op}.{r}.f32" for op in ("rcp", "sqrt") for r in _FLOAT_ROUNDINGS),
    *words("sqrt.rn.ftz.f32 rcp.rn.ftz.f32 sqrt.rn.f64 rcp.rn.f64"),
    # --- conversions: integers
    *(f"cvt.{form}" for form in words(
        "s64.s32 u64.u32 u32.u64 s32.s64 s32.s8 u32.u8 s32.s16 u32.u16 u16.u32 s64.s16")),
    # --- float to integer
    *(f"cvt.{r}.{t}.f32" for r in ("rni", "rzi", "rmi", "rpi") for t in ("s32", "u32")),
    *(f"cvt.{form}" for form in words(
        "rni.ftz.s32.f32 rmi.ftz.s32.f32 rzi.s64.f32 rzi.u64.f32 rni.s64.f32 rzi.s32.f64 "
        "rni.u32.f64 rzi.s64.f64 rzi.u64.f64 rmi.s64.f64 rzi.s32.f16 rni.u32.f16 rzi.s16.f32 "
        "rzi.s64.f16")),
    # --- integer to float
    *(f"cvt.{r}.f32.{t}" for r in _FLOAT_ROUNDINGS for t in ("s32", "u32", "s64", "u64")),
    *(f"cvt.{r}.f64.{t}" for r in _FLOAT_ROUNDINGS for t in ("s64", "u64")),
    *words("cvt.rn.f64.s32 cvt.rn.f64.u32 cvt.rn.f16.s32 cvt.rn.f16.u32 cvt.rn.f32.s16"),
    # --- float to float
    *(f"cvt.{r}.f32.f64" for r in _FLOAT_ROUNDINGS),
    *words("cvt.rn.f16.f32 cvt.rn.bf16.f32"),
    *(f"cvt.{r}.f32.f32" for r in ("rni", "rzi", "rmi", "rpi", "sat", "rni.ftz", "ftz.sat")),
    *(f"cvt.{r}.f64.f64" for r in ("rni", "rzi", "rmi", "rpi")),
    *(f"cvt.{form}" for form in words(
        "f64.f32 ftz.f64.f32 rn.ftz.f32.f64 rn.ftz.f16.f32 f32.f16 ftz.f32.f16 f64.f16 "
        "rna.tf32.f32 rni.f16.f16")),
]  # fmt: skip

BINARY = [
    *(f"{op}.{t}" for op in ("add", "sub") for t in ("s32", "u32", "s64", "u64", "s16", "u16")),
    *(f"mul.{part}.{t}" for part in ("lo", "hi") for t in ("s32", "u32", "s64", "u64", "s16")),
    *(f"mul.wide.{t}" for t in ("s16", "u16", "s32", "u32")),
    *(f"{op}.{t}" for op in ("div", "rem") for t in ("s32", "u32", "s64", "u64")),
    *(f"{op}.{t}" for op in ("min", "max") for t in ("s32", "u32", "s64", "u64", "s16", "u16")),
    *(f"{op}.{t}" for op in ("and", "or", "xor") for t in ("b16", "b32", "b64", "pred")),
    *(f"{op}.{t}" for op in ("shl",) for t in ("b16", "b32", "b64")),
    *(f"shr.{t}" for t in ("u16", "s16", "b32", "u32", "s32", "u64", "s64")),
    *(f"{op}.{form}" for op in ("add", "sub", "mul") for form in words(
        "f32 rn.f32 rz.f32 rm.f32 rp.f32 ftz.f32 sat.f32 rz.ftz.f32 f64 rn.f64 rz.f64 rm.f64 "
        "rp.f64 f16 rn.f16 f16x2")),
    *(f"{op}.{form}" for op in ("min", "max") for form in words(
        "f32 ftz.f32 f64 f16 f16x2 bf16 bf16x2")),
    *(f"div.{form}" for form in words(
        "rn.f32 rz.f32 rm.f32 rp.f32 rn.ftz.f32 full.f32 full.ftz.f32 "
        "rn.f64")),
    *words("copysign.f32 copysign.f64"),
    *(f"cvt.{form}.f32" for form in words(
        "rn.f16x2 rn.bf16x2")),
    *(f"setp.{c}.{t}" for c in _ORDERED for t in ("s32", "u32", "s64", "u64", "f32", "f64")),
    *(f"setp.{c}.f32" for c in _UNORDERED),
    *(f"setp.{c}.{t}" for c in ("eq", "ne") for t in ("b16", "b32", "b64")),
    *(f"setp.{c}.u32" for c in ("lo", "ls", "hi", "hs")),
    *words("setp.lt.ftz.f32 setp.eq.ftz.f32 setp.geu.ftz.f32 setp.lt.f16 setp.geu.f16"),
    *words("setp.neu.f64 setp.ltu.f64 setp.nan.f64 setp.lt.s16 setp.lt.u16"),
]  # fmt: skip

TERNARY = [
    *(f"fma.{form}" for form in words(
        "rn.f32 rz.f32 rm.f32 rp.f32 rn.ftz.f32 rn.sat.f32 rn.f64 rz.f64 rm.f64 rp.f64 rn.f16 "
        "rn.f16x2")),
    *words("mad.lo.s32 mad.lo.u32 mad.lo.s64 mad.wide.s32 mad.wide.u32"),
    *words("mad.wide.s16 mad.wide.u16 mad.lo.s16 mad.rn.f32"),
    *words("shf.l.wrap.b32 shf.r.wrap.b32 shf.l.clamp.b32 shf.r.clamp.b32"),
    *words("bfe.u32 bfe.s32 bfe.u64 bfe.s64"),
    *(f"selp.{t}" for t in ("b16", "b32", "b64", "u32", "s32", "u64", "s64", "f32", "f64")),
]  # fmt: skip

# Micro-kernels that a rule cannot make: name, form, PTX with $d $a $b $c, operands, result.
SPECIAL: list[tuple[str, str, str, str, str]] = [
    ("bfi.b32", "bfi.b32", "bfi.b32 $d, $a, $b, $c, 7;", "r", "b32"),
    ("bfi.b32 length", "bfi.b32", "bfi.b32 $d, $a, $b, 5, $c;", "r", "b32"),
    ("bfi.b64", "bfi.b64", "bfi.b64 $d, $a, $b, %rc, %rb;", "x", "b64"),
    ("not.pred", "not.pred", "{ .reg .pred p; not.pred p, %qa; selp.b32 $d, 1, 0, p; }", "r",
     "b32"),
    ("mov.b32 pack", "mov.b32", "mov.b32 $d, {$a, $b};", "h", "b32"),
    ("mov.b64 pack", "mov.b64", "mov.b64 $d, {$a, $b};", "r", "b64"),
    ("mov.b32 unpack", "mov.b32",
     "{ .reg .b16 l, h; mov.b32 {l, h}, $a; cvt.u32.u16 $d, h; }", "r", "b32"),
    ("mov.b64 unpack", "mov.b64",
     "{ .reg .b32 l, h; mov.b64 {l, h}, $a; sub.u32 $d, h, l; }", "x", "b32"),
    ("mov.b32 float", "mov.b32", "mov.b32 $d, $a;", "f", "b32"),
    ("mov.f32 constant", "mov.f32", "mov.f32 $d, 0f3FB8AA3B;", "f", "f32"),
    ("mov.f32 infinity", "mov.f32", "mov.f32 $d, 0fFF800000;", "f", "f32"),
    ("mov.u32 constant", "mov.u32", "mov.u32 $d, -1;", "r", "b32"),
    *((f"mov.u32 {name}", "mov.u32", f"mov.u32 $d, {name};", "r", "b32")
      for name in ("%tid.x", "%tid.y", "%ctaid.x", "%ntid.x", "%nctaid.x", "%laneid",
                   "%lanemask_lt", "%lanemask_ge")),
    *((f"setp.lt.{op}.s32 pair", f"setp.lt.{op}.s32",
       f"{{ .reg .pred p, q; .reg .b32 u, v; setp.lt.{op}.s32 p|q, $a, $b, %qb; "
       "selp.b32 u, 1, 0, p; selp.b32 v, 2, 0, q; add.s32 $d, u, v; }", "r", "b32")
      for op in ("and", "or", "xor")),
    # --- warp collectives: all lanes take part; the lane operand differs from lane to lane
    *((f"shfl.sync.{mode}.b32 0x{c:X}", f"shfl.sync.{mode}.b32",
       f"{{ .reg .pred p; .reg .b32 v, u; shfl.sync.{mode}.b32 v|p, $a, %rb, 0x{c:X}, -1; "
       "selp.b32 u, 0x5A5A0000, 0, p; xor.b32 $d, v, u; }", "r", "b32")
      for mode, clamps in (("bfly", (0x1F, 0x181F, 0x1C03)), ("idx", (0x1F, 0x101F, 0x1807)),
                           ("down", (0x1F, 0x181F, 0x0F)), ("up", (0, 0x1800, 0x1C04)))
      for c in clamps),
    *((f"shfl.sync.bfly.b32 by {b}", "shfl.sync.bfly.b32",
       f"shfl.sync.bfly.b32 $d, $a, {b}, 31, -1;", "r", "b32") for b in (1, 2, 16)),
    *((f"vote.sync.{mode}.pred {p}", f"vote.sync.{mode}.pred",
       f"{{ .reg .pred p; vote.sync.{mode}.pred p, {p}, -1; selp.b32 $d, 1, 0, p; }}", "r", "b32")
      for mode in ("any", "all", "uni") for p in ("%qa", "%qrare", "%qwarp")),
    ("vote.sync.ballot.b32", "vote.sync.ballot.b32", "vote.sync.ballot.b32 $d, %qa, -1;", "r",
     "b32"),
    *((f"redux.sync.{op}", f"redux.sync.{op}", f"redux.sync.{op} $d, $a, -1;", "r", "b32")
      for op in ("add.s32", "add.u32", "min.s32", "max.s32", "min.u32", "max.u32", "and.b32",
                 "or.b32", "xor.b32")),
]  # fmt: skip

# Forms that only Triton writes, in an entry of their own: those above keep their recorded answers.
FROM_TRITON: list[tuple[list[str], int]] = [
    (words("neg.bf16 neg.bf16x2 abs.bf16 abs.bf16x2"), 1),
    (words("fma.rn.bf16 fma.rn.bf16x2 prmt.b32"), 3),
]


def _pair_compared(form: str) -> tuple[str, str, str, str, str]:
    return (
        f"{form} pair",
        form,
        f"{{ .reg .pred p, q; .reg .b32 u, v; {form} p|q, $a, $b; selp.b32 u, 1, 0, p; "
        "selp.b32 v, 2, 0, q; add.s32 $d, u, v; }",
        "v",
        "b32",
    )


TRITON_SPECIAL = [_pair_compared(f"setp.{compare}.f16x2") for compare in words("lt geu neu")]
# sm_90 has them, sm_80 does not (tests/emulator/sm90/conformance).
FROM_TRITON_SM90: list[tuple[list[str], int]] = [
    ([f"{op}.{form}" for op in ("add", "sub", "mul")
      for form in words("bf16 rn.bf16 bf16x2 rn.bf16x2")], 2),
]  # fmt: skip
TRITON_SPECIAL_SM90 = [_pair_compared("setp.lt.bf16x2")]
