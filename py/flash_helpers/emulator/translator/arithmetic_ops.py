"""Integer, logic and floating-point arithmetic."""

from __future__ import annotations

from collections.abc import Callable

from .emitter import Emitter
from .ptx_parser import Instruction
from .ptx_types import F32, TYPES, U32, PtxType
from .registry import Modifiers, Unsupported, computes

ROUNDING = {"rn": "Round::kNearest", "rz": "Round::kZero", "rm": "Round::kDown", "rp": "Round::kUp"}

# How the 16-bit formats are widened and narrowed in C++.
HALF = {
    "f16": ("f16_to_f32", "f32_to_f16"),
    "bf16": ("bf16_to_f32", "f32_to_bf16"),
}


def reads(e: Emitter, ins: Instruction, ptx_type: PtxType, ftz: bool = False) -> list[str]:
    """All operands but the first, as expressions of one type."""
    values = [e.read(operand, ptx_type) for operand in ins.operands[1:]]
    return [f"ftz({value})" for value in values] if ftz else values


def float_result(value: str, ftz: bool, saturating: bool) -> str:
    if ftz:
        value = f"ftz({value})"
    return f"saturate({value})" if saturating else value


def half_arithmetic(
    e: Emitter, ins: Instruction, ptx_type: PtxType, operation: Callable[..., str]
) -> tuple[PtxType, str]:
    """An operation on f16 or bf16, or on both halves of a pair, computed in f32.

    f32 has more than twice the bits of both, so rounding twice rounds correctly for + - * and
    min/max; fma has functions of its own.
    """
    scalar = ptx_type.kind.removesuffix("x2")
    widen, narrow = HALF[scalar]
    values = [e.read(operand, ptx_type) for operand in ins.operands[1:]]

    def compute(shift: int) -> str:
        items = [f"u16({value} >> {shift})" if shift else f"u16({value})" for value in values]
        if ins.opcode[0] == "fma":
            return f"fma_{scalar}({', '.join(items)})"
        return f"{narrow}({operation(*[f'{widen}({item})' for item in items])})"

    if ptx_type.bits == 16:
        return (ptx_type, compute(0))
    return (ptx_type, f"u32{{{compute(16)}}} << 16 | {compute(0)}")


@computes("add", "sub", "mul")
def add_sub_mul(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    symbol = {"add": "+", "sub": "-", "mul": "*"}[ins.opcode[0]]
    if ptx_type.is_integer:
        return _integer_add_sub_mul(e, ins, mods, ptx_type, symbol)
    rounding = mods.take(*ROUNDING)
    ftz, saturating = bool(mods.take("ftz")), bool(mods.take("sat"))
    mods.done()
    if ptx_type.kind in ("f16", "bf16", "f16x2", "bf16x2"):
        if ftz or saturating:
            raise Unsupported("16-bit arithmetic with .ftz or .sat")
        return half_arithmetic(e, ins, ptx_type, lambda a, b: f"{a} {symbol} {b}")
    a, b = reads(e, ins, ptx_type, ftz)
    value = f"{a} {symbol} {b}"
    if rounding not in ("", "rn"):
        value = (
            f"mul_rounded({a}, {b}, {ROUNDING[rounding]})"
            if symbol == "*"
            else f"add_rounded({a}, {'-' if symbol == '-' else ''}({b}), {ROUNDING[rounding]})"
        )
    return (ptx_type, float_result(value, ftz, saturating))


def _integer_add_sub_mul(
    e: Emitter, ins: Instruction, mods: Modifiers, ptx_type: PtxType, symbol: str
) -> tuple[PtxType, str]:
    unsigned = TYPES[f"u{ptx_type.bits}"]
    if symbol == "*":
        part = mods.take("lo", "hi", "wide")
        mods.done()
        a, b = reads(e, ins, ptx_type)
        if part == "wide":
            wide = TYPES[f"{ptx_type.kind}{2 * ptx_type.bits}"]
            return (wide, f"mul_wide<{ptx_type.cpp}>({a}, {b})")
        if not part:
            raise Unsupported("integer mul without .lo, .hi or .wide")
        return (ptx_type, f"mul_{part}<{ptx_type.cpp}>({a}, {b})")
    if mods.take("sat"):
        mods.done()
        a, b = reads(e, ins, ptx_type)
        sum_ = f"saturating_add<s32>(s64({a}) {symbol} s64({b}))"
        return (ptx_type, sum_)
    mods.done()
    a, b = reads(e, ins, unsigned)
    return (unsigned, f"{unsigned.cpp}({a} {symbol} {b})")


@computes("mad")
def mad(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    if ptx_type.is_float:
        return fma(e, ins)
    part = mods.take("lo", "hi", "wide")
    mods.done()
    if not part:
        raise Unsupported("integer mad without .lo, .hi or .wide")
    a, b = (e.read(operand, ptx_type) for operand in ins.operands[1:3])
    result = TYPES[f"{ptx_type.kind}{2 * ptx_type.bits}"] if part == "wide" else ptx_type
    unsigned = TYPES[f"u{result.bits}"]
    c = e.read(ins.operands[3], unsigned)
    product = f"{unsigned.cpp}(mul_{part}<{ptx_type.cpp}>({a}, {b}))"
    return (unsigned, f"{unsigned.cpp}({product} + {c})")


@computes("fma")
def fma(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    rounding = mods.take(*ROUNDING)
    ftz, saturating = bool(mods.take("ftz")), bool(mods.take("sat"))
    mods.done()
    if not ptx_type.is_float:
        if ftz or saturating:
            raise Unsupported("16-bit arithmetic with .ftz or .sat")
        return half_arithmetic(e, ins, ptx_type, lambda *_: "")
    a, b, c = reads(e, ins, ptx_type, ftz)
    if rounding in ("", "rn"):
        value = f"fused({a}, {b}, {c})"
    else:
        value = f"fma_rounded({a}, {b}, {c}, {ROUNDING[rounding]})"
    return (ptx_type, float_result(value, ftz, saturating))


@computes("min", "max")
def min_max(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    ftz, nan = bool(mods.take("ftz")), bool(mods.take("NaN"))
    mods.done()
    if len(ins.operands) != 3:
        raise Unsupported(f"{ins.opcode[0]} of {len(ins.operands) - 1} operands")
    name = f"f{ins.opcode[0]}" + ("_nan" if nan else "")
    if ptx_type.is_integer:
        a, b = reads(e, ins, ptx_type)
        sign = "<" if ins.opcode[0] == "min" else ">"
        return (ptx_type, f"({a} {sign} {b} ? {a} : {b})")
    if not ptx_type.is_float:
        return half_arithmetic(e, ins, ptx_type, lambda a, b: f"{name}({a}, {b})")
    a, b = reads(e, ins, ptx_type, ftz)
    return (ptx_type, f"{name}({a}, {b})")


@computes("neg", "abs")
def neg_abs(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    ftz = bool(mods.take("ftz"))
    mods.done()
    unsigned = TYPES[f"u{ptx_type.bits}"]
    bits = e.read(ins.operands[1], unsigned)
    if ptx_type.is_integer:
        negated = f"{unsigned.cpp}(0 - {bits})"
        if ins.opcode[0] == "abs":
            negated = f"({e.read(ins.operands[1], ptx_type)} < 0 ? {negated} : {bits})"
        return (unsigned, negated)
    if ptx_type.kind in ("f16", "f16x2"):  # unlike those of bf16 and f32, NaN become canonical
        function = "-" if ins.opcode[0] == "neg" else "__builtin_fabsf"
        return half_arithmetic(e, ins, ptx_type, lambda a: f"{function}({a})")
    sign = 1 << (ptx_type.bits - 1)
    if ptx_type.kind.endswith("x2"):
        sign |= 1 << 15
    if ftz and ptx_type.is_float:
        bits = f"as<u32>(ftz({e.read(ins.operands[1], ptx_type)}))"
    value = f"{bits} ^ {sign}ull" if ins.opcode[0] == "neg" else f"{bits} & ~{sign}ull"
    return (unsigned, f"{unsigned.cpp}({value})")


@computes("copysign")
def copysign(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    """The sign of the first operand on the magnitude of the second."""
    mods = Modifiers(ins)
    ptx_type = mods.type()
    mods.done()
    unsigned = TYPES[f"u{ptx_type.bits}"]
    sign, magnitude = (e.read(operand, unsigned) for operand in ins.operands[1:3])
    mask = f"{1 << (ptx_type.bits - 1)}ull"
    return unsigned, f"{unsigned.cpp}(({sign} & {mask}) | ({magnitude} & ~{mask}))"


@computes("div", "rem")
def div_rem(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    rounding = mods.take(*ROUNDING, "full", "approx")
    ftz = bool(mods.take("ftz"))
    mods.done()
    a, b = reads(e, ins, ptx_type, ftz)
    if ptx_type.is_integer:
        name = "divide" if ins.opcode[0] == "div" else "remainder"
        return (ptx_type, f"{name}<{ptx_type.cpp}>({a}, {b})")
    if not ptx_type.is_float:
        raise Unsupported(f"{ptx_type.name} division")
    value = f"divide_approximately({a}, {b})" if rounding == "approx" else f"{a} / {b}"
    if rounding in ("rz", "rm", "rp"):
        value = f"div_rounded({a}, {b}, {ROUNDING[rounding]})"
    return (ptx_type, float_result(value, ftz, False))


_FUNCTIONS = {
    "ex2": "ex2",
    "lg2": "lg2",
    "sin": "sine",
    "cos": "cosine",
    "tanh": "hyperbolic_tangent",
    "rsqrt": "rsqrt",
    "sqrt": "square_root",
    "rcp": "",
}


@computes(*_FUNCTIONS)
def unary_function(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    rounding = mods.take(*ROUNDING, "approx")
    ftz = bool(mods.take("ftz"))
    mods.done()
    opcode = ins.opcode[0]
    if ptx_type is not F32 and not (ptx_type.is_float and opcode in ("sqrt", "rcp")):
        raise Unsupported(f"{opcode} of {ptx_type.name}")
    (a,) = reads(e, ins, ptx_type, ftz)
    directed = rounding in ("rz", "rm", "rp")
    if opcode == "rcp":
        value = f"{ptx_type.cpp}(1) / {a}"
        if directed:
            value = f"div_rounded({ptx_type.cpp}(1), {a}, {ROUNDING[rounding]})"
    elif directed:
        value = f"sqrt_rounded({a}, {ROUNDING[rounding]})"
    else:
        value = f"{_FUNCTIONS[opcode]}({a})"
    return (ptx_type, float_result(value, ftz, False))


@computes("sad")
def sad(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    mods.done()
    a, b = (e.read(operand, ptx_type) for operand in ins.operands[1:3])
    c = e.read(ins.operands[3], U32)
    if ptx_type.bits != 32:
        raise Unsupported(f"sad of {ptx_type.name}")
    return (U32, f"u32({a} < {b} ? u32({b}) - u32({a}) : u32({a}) - u32({b})) + {c}")
