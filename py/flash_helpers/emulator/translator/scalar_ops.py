"""Instructions on registers: a table from opcode and types to a C++ expression, and functions for
what does not fit into it (comparisons, conversions, moves).

A row of the table: opcode with the modifiers that it must have; types that it exists for; modifiers
that it may have; kinds of the result and of the operands; the expression. Kinds: t the
instruction's type, w unsigned bits of twice its size, r 32 bits, p a predicate. In an expression a,
b, c, d are the operands, T is the C++ type, W the 64-bit type of its signedness, BITS its width.
Integers wrap around. Rounding modes, ftz and sat do the same in every row.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from .emitter import Emitter, elements
from .forms import Modifiers, Unsupported
from .ptx_parser import Instruction
from .ptx_types import F32, PRED, TYPES, U32, PtxType
from .registry import computes, instruction

TABLE = """
add         | int        |           | t tt   | a + b
sub         | int        |           | t tt   | a - b
mul.lo      | int        |           | t tt   | a * b
mul.hi      | int        |           | t tt   | wide(a) * wide(b) >> BITS
mul.wide    | int        |           | w tt   | wide(a) * wide(b)
mad.lo      | int        |           | t ttt  | a * b + c
mad.wide    | int        |           | w ttw  | wide(a) * wide(b) + c
div         | int        |           | t tt   | b ? wide(a) / b : ~wide(T(0))
rem         | int        |           | t tt   | b ? wide(a) % b : ~wide(T(0))
min         | int        |           | t tt   | a < b ? a : b
max         | int        |           | t tt   | a > b ? a : b
abs         | int        |           | t t    | a < 0 ? -a : a
and         | int pred   |           | t tt   | a & b
or          | int pred   |           | t tt   | a | b
xor         | int pred   |           | t tt   | a ^ b
not         | pred       |           | t t    | !a
not         | int        |           | t t    | ~a
shl         | int        |           | t tr   | b < BITS ? a << b : 0
shr         | int        |           | t tr   | b < BITS ? a >> b : a < 0 ? -1 : 0
shf.l.wrap  | b32        |           | r rrr  | pair(b, a) << (c & 31) >> 32
shf.r.wrap  | b32        |           | r rrr  | pair(b, a) >> (c & 31)
shf.l.clamp | b32        |           | r rrr  | c < 32 ? pair(b, a) << c >> 32 : a
shf.r.clamp | b32        |           | r rrr  | c < 32 ? pair(b, a) >> c : b
bfe         | int        |           | t trr  | bit_field(W(a), b, c)
bfi         | int        |           | t ttrr | insert_bit_field(a, b, c, d)
popc        | b32 b64    |           | r t    | __builtin_popcountll(a)
clz         | b32 b64    |           | r t    | a ? __builtin_clzll(a) - (64 - BITS) : BITS
activemask  | b32        |           | r      | 1u << L->lane_id
selp        | int float  |           | t ttp  | c ? a : b
add         | float      | round sat | t tt   | a + b
sub         | float      | round sat | t tt   | a - b
mul         | float      | round sat | t tt   | a * b
fma         | float      | round sat | t ttt  | fused(a, b, c)
mad         | float      | round sat | t ttt  | fused(a, b, c)
div         | float      | round full | t tt  | a / b
rcp         | float      | round approx | t t | 1 / a
sqrt        | float      | round approx | t t | __builtin_sqrt(a)
rsqrt       | f32        | approx    | t t    | 1 / __builtin_sqrtf(a)
ex2         | f32        | approx    | t t    | __builtin_exp2f(a)
lg2         | f32        | approx    | t t    | __builtin_log2f(a)
sin         | f32        | approx    | t t    | __builtin_sinf(a)
cos         | f32        | approx    | t t    | __builtin_cosf(a)
tanh        | f32        | approx    | t t    | __builtin_tanhf(a)
min         | float half |           | t tt   | minimum(a, b)
max         | float half |           | t tt   | canonical(-minimum(-a, -b))
add.cc      | u32        |           | t tt   | (L->carry = T(a + b) < T(a), a + b)
addc        | u32        |           | t tt   | a + b + L->carry
neg         | int float half |       | t t    | -a
abs         | float half |           | t t    | __builtin_fabs(a)
copysign    | float      |           | t tt   | signs_differ(a, b) ? -b : b
add         | half       | rn        | t tt   | a + b
sub         | half       | rn        | t tt   | a - b
mul         | half       | rn        | t tt   | a * b
fma         | half       | rn        | t ttt  | sum_to_odd(a * b, c)
prmt        | b32        |           | r rrr  | permuted_bytes(a, b, c)
"""

INTEGERS = " ".join(f"{kind}{bits}" for kind in "usb" for bits in (16, 32, 64))
GROUPS = {"int": INTEGERS, "float": "f32 f64", "half": "f16 f16x2 bf16 bf16x2"}
ROUNDING = {"rn": "", "rz": "FE_TOWARDZERO", "rm": "FE_DOWNWARD", "rp": "FE_UPWARD"}
INTEGRAL = {
    "rni": "__builtin_nearbyint",
    "rzi": "__builtin_trunc",
    "rmi": "__builtin_floor",
    "rpi": "__builtin_ceil",
}
# True for NaN where PTX says "unordered". C++'s != is, but .ne is an ordered comparison.
_COMPARISONS = (
    "eq: a == b; ne: a < b || a > b; lt: a < b; le: a <= b; gt: a > b; ge: a >= b; "
    "equ: !(a < b || a > b); neu: a != b; ltu: !(a >= b); leu: !(a > b); gtu: !(a <= b); "
    "geu: !(a < b); num: a == a && b == b; nan: a != a || b != b; "
    "lo: a < b; ls: a <= b; hi: a > b; hs: a >= b"
)
COMPARISONS: dict[str, str] = dict(re.findall(r"(\w+): ([^;]+)", _COMPARISONS))


class Row(NamedTuple):
    required: set[str]
    types: set[str]
    optional: set[str]
    result: str
    operands: str
    expression: str


def _rows() -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for line in TABLE.strip().splitlines():
        form, groups, optional, kinds, expression = (cell.strip() for cell in line.split("|", 4))
        opcode, *required = form.split(".")
        types = {name for group in groups.split() for name in GROUPS.get(group, group).split()}
        allowed = set(optional.replace("round", " ".join(ROUNDING)).split())
        if "f32" in types:
            allowed.add("ftz")
        result, _, operands = kinds.partition(" ")
        row = Row(set(required), types, allowed, result, operands, expression)
        rows.setdefault(opcode, []).append(row)
    return rows


ROWS = _rows()


def _row_of(ins: Instruction) -> Row:
    modifiers, count = set(ins.opcode[1:-1]), len(ins.operands) - 1
    for row in ROWS[ins.opcode[0]]:
        fits = row.required <= modifiers <= row.required | row.optional
        if fits and ins.opcode[-1] in row.types and count == len(row.operands):
            return row
    raise Unsupported(f"this form of {ins.opcode[0]}")


def filled(expression: str, words: dict[str, str]) -> str:
    return re.sub(r"\b[abcdTW]\b|\bBITS\b", lambda m: words.get(m[0], m[0]), expression)


def _lambda(ptx_type: str, count: int, expression: str) -> str:
    parameters = ", ".join(f"{ptx_type} {name}" for name in "abc"[:count])
    return f"[]({parameters}) {{ return {expression}; }}"


def _rounded(mode: str, ptx_type: str, expression: str, values: Sequence[str]) -> str:
    """The expression of values a, b, c in a rounding mode that is not the usual one."""
    function = _lambda("auto", len(values), f"{ptx_type}({expression})")
    return f"rounded({ROUNDING[mode]}, {function}, {', '.join(values)})"


@computes(*ROWS)
def from_table(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    row = _row_of(ins)
    ptx_type = TYPES[ins.opcode[-1]]
    bits, cpp = ptx_type.bits, ptx_type.cpp
    wide = TYPES.get(f"u{2 * bits}", ptx_type)
    kinds = {"t": ptx_type, "w": wide, "r": U32, "p": PRED}
    values = [
        e.read(text, kinds[kind]) for text, kind in zip(ins.operands[1:], row.operands, strict=True)
    ]
    if "ftz" in ins.opcode:
        values = [f"ftz({value})" for value in values]
    words = {
        "T": cpp,
        "W": f"{cpp[0]}64",
        "BITS": str(bits),
        **dict(zip("abcd", "abcd", strict=True)),
    }
    expression = filled(row.expression, words)
    mode = next((mode for mode in ROUNDING if mode in ins.opcode), "rn")
    if ptx_type.kind.removesuffix("x2") in HALVES:
        function = _lambda("f64", len(values), expression)
        return ptx_type, f"halves<{HALVES[ptx_type.kind]}>({function}, {', '.join(values)})"
    if mode != "rn":
        value = _rounded(mode, cpp, expression, values)
    else:
        value = filled(expression, dict(zip("abcd", values, strict=False)))
    if "ftz" in ins.opcode:
        value = f"ftz({value})"
    return kinds[row.result], f"saturate({cpp}({value}))" if "sat" in ins.opcode else value


# The C++ names of the 16-bit formats, whose registers hold bits.
HALVES = {"f16": "F16", "f16x2": "F16", "bf16": "Bf16", "bf16x2": "Bf16"}


def _widened(value: str, ptx_type: PtxType, ftz: bool = False) -> str:
    if ptx_type.kind in ("f16", "bf16"):
        return f"{ptx_type.kind}_to_f32({value})"
    if ptx_type.kind.endswith("x2"):
        raise Unsupported(f"{ptx_type.name} as one number")
    return f"ftz({value})" if ftz else value


def _compared(name: str, operands: Sequence[str], ptx_type: PtxType, ftz: bool) -> str:
    a, b = (_widened(value, ptx_type, ftz) for value in operands)
    return f"({filled(COMPARISONS[name], {'a': a, 'b': b})})"


@instruction("setp")
def setp(e: Emitter, ins: Instruction) -> None:
    """The comparison and, in p|q, its negation or, of pairs, that of the upper halves; both
    combined with a third operand."""
    mods = Modifiers(ins)
    ptx_type, name, combine = mods.type(), mods.take(*COMPARISONS), mods.take("and", "or", "xor")
    ftz = bool(mods.take("ftz"))
    mods.done()
    if name in ("lo", "ls", "hi", "hs"):
        ptx_type = TYPES[f"u{ptx_type.bits}"]
    operands = [e.read(text, ptx_type) for text in ins.operands[1:3]]
    results = elements(ins.operands[0], "|")
    if ptx_type.kind.endswith("x2"):  # p is the lower halves' result, q that of the upper ones
        pairs = [[f"u16({x} >> {shift})" for x in operands] for shift in (0, 16)]
        values = [_compared(name, pair, TYPES[ptx_type.kind[:-2]], ftz) for pair in pairs]
    else:
        values = [_compared(name, operands, ptx_type, ftz)]
        values.append(f"!{values[0]}")
    if combine:
        symbol = {"and": "&&", "or": "||", "xor": "!="}[combine]
        values = [f"({item} {symbol} {e.read(ins.operands[3], PRED)})" for item in values]
    if len(results) == 1:
        return e.write(results[0], PRED, values[0])
    # Both results come from the old values, even where a result is also an operand.
    e.emit(f"{{ const bool both[] = {{{values[0]}, {values[1]}}};")
    for i, result in enumerate(results):
        e.write(result, PRED, f"both[{i}]")
    return e.emit("}")


@computes("cvt")
def cvt(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    source, target = mods.type(), mods.type()
    integral, rounding = mods.take(*INTEGRAL), mods.take(*ROUNDING, "rna") or "rn"
    ftz, saturating = bool(mods.take("ftz")), bool(mods.take("sat"))
    values = [e.read(text, source) for text in ins.operands[1:]]
    if target.kind.endswith("x2"):
        return _pack(mods, target, source, rounding, values)
    mods.done()
    (value,) = values
    if target.kind == "tf32" and source is F32 and rounding == "rna":
        return target, f"f32_to_tf32({value})"
    if source.is_integer and target.is_integer and not saturating:
        return target, value
    wide = f"canonical(ftz({value}))" if ftz and source is F32 else _widened(value, source)
    if integral:
        wide = f"{INTEGRAL[integral]}({wide})"
    if target.is_integer and integral:
        # What NaN becomes, as the hardware has it: the top bit if 64 bits are involved, else 0.
        nan = 1 << target.bits - 1 if 64 in (source.bits, target.bits) else 0
        return target, f"to_integer<{target.cpp}>({wide}, {nan}ull)"
    if target.kind in ("f16", "bf16") and source.bits <= 32 and rounding == "rn":
        value = f"f32_to_{target.kind}(f32({wide}))"  # integers beyond 2^24 are infinite in f16
    elif not target.is_float:
        raise Unsupported(f"conversion of {source.name} to {target.name}")
    elif rounding != "rn":
        value = _rounded(rounding, target.cpp, "a", [wide])
    else:
        value = f"{target.cpp}({wide})"
    if not source.is_integer and target is F32 and source.bits < 64:
        value = f"canonical({value})"
    if ftz and target is F32:
        value = f"ftz({value})"
    return target, f"saturate({value})" if saturating else value


def _pack(
    mods: Modifiers, target: PtxType, source: PtxType, rounding: str, values: list[str]
) -> tuple[PtxType, str]:
    """Two f32, the first into the upper half."""
    mods.done()
    if source is not F32 or rounding != "rn" or len(values) != 2:
        raise Unsupported("packing conversion other than .rn of two .f32")
    high, low = (f"f32_to_{target.kind.removesuffix('x2')}({value})" for value in values)
    return target, f"u32{{{high}}} << 16 | {low}"


@instruction("mov")
def mov(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    mods.done()
    destination, source = ins.operands
    parts = elements(source if source.startswith("{") else destination)
    if len(parts) == 1 and not source.startswith("{"):
        return e.write(destination, ptx_type, e.read(source, ptx_type))
    whole, part = TYPES[f"u{ptx_type.bits}"], TYPES[f"u{ptx_type.bits // len(parts)}"]
    if source.startswith("{"):
        shifted = [
            f"{whole.cpp}({e.read(item, part)}) << {i * part.bits}" for i, item in enumerate(parts)
        ]
        return e.write(destination, whole, " | ".join(shifted))
    e.emit(f"{{ const {whole.cpp} whole = {e.read(source, whole)};")
    for i, item in enumerate(parts):
        e.write(item, part, f"whole >> {i * part.bits}")
    return e.emit("}")
