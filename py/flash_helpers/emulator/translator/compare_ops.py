"""Comparisons and the choice between two values."""

from __future__ import annotations

from .arithmetic_ops import HALF
from .emitter import Emitter
from .ptx_parser import Instruction
from .ptx_types import PRED, TYPES, PtxType
from .registry import Modifiers, Unsupported, computes, instruction

_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_COMPARE_UNSIGNED = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
_COMPARE_UNORDERED = {"equ": "!=", "neu": "==", "ltu": ">=", "leu": ">", "gtu": "<=", "geu": "<"}


def compare(e: Emitter, operands: tuple[str, ...], name: str, ptx_type: PtxType, ftz: bool) -> str:
    if name in _COMPARE_UNSIGNED:
        ptx_type = TYPES[f"u{ptx_type.bits}"]
    a, b = (e.read(operand, ptx_type) for operand in operands)
    if ptx_type.kind in HALF:
        a, b = (f"{HALF[ptx_type.kind][0]}({item})" for item in (a, b))
    elif ptx_type.kind.endswith("x2"):
        raise Unsupported(f"comparison of {ptx_type.name}")
    if ftz:
        a, b = f"ftz({a})", f"ftz({b})"
    is_number = not ptx_type.is_integer
    if name in _COMPARE or name in _COMPARE_UNSIGNED:
        symbol = _COMPARE.get(name) or _COMPARE_UNSIGNED[name]
        # != is true for NaN in C++, but .ne is an ordered comparison.
        return f"({a} < {b} || {a} > {b})" if name == "ne" and is_number else f"({a} {symbol} {b})"
    if name == "neu":
        return f"({a} != {b})"
    if name == "equ":
        return f"!({a} < {b} || {a} > {b})"
    if name in _COMPARE_UNORDERED:
        return f"!({a} {_COMPARE_UNORDERED[name]} {b})"
    return f"({a} == {a} && {b} == {b})" if name == "num" else f"({a} != {a} || {b} != {b})"


def _comparison(
    e: Emitter, ins: Instruction, mods: Modifiers, ptx_type: PtxType
) -> tuple[str, str]:
    """The two results of setp: the comparison and its negation, combined with a third operand."""
    name = mods.take(*_COMPARE, *_COMPARE_UNSIGNED, *_COMPARE_UNORDERED, "num", "nan")
    combine = mods.take("and", "or", "xor")
    ftz = bool(mods.take("ftz"))
    mods.done()
    value = compare(e, ins.operands[1:3], name, ptx_type, ftz)
    if not combine:
        return value, f"!{value}"
    symbol = {"and": "&&", "or": "||", "xor": "!="}[combine]
    c = e.read(ins.operands[3], PRED)
    return f"({value} {symbol} {c})", f"(!{value} {symbol} {c})"


@instruction("setp")
def setp(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    first, second = _comparison(e, ins, mods, mods.type())
    results = [item.strip() for item in ins.operands[0].split("|")]
    if len(results) == 1:
        e.write(results[0], PRED, first)
        return
    # Both results come from the old values, even where a result is also an operand.
    e.emit(f"{{ const bool first = {first}, second = {second};")
    e.write(results[0], PRED, "first")
    e.write(results[1], PRED, "second")
    e.emit("}")


@computes("set")
def set_(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    source, result = mods.type(), mods.type()
    one = "1.0f" if result.is_float else f"{result.cpp}(-1)"
    return result, f"({_comparison(e, ins, mods, source)[0]} ? {one} : {result.cpp}(0))"


@computes("selp")
def selp(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    mods.done()
    a, b = (e.read(operand, ptx_type) for operand in ins.operands[1:3])
    return (ptx_type, f"({e.read(ins.operands[3], PRED)} ? {a} : {b})")
