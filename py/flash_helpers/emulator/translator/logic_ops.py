"""Bits: logic, shifts, fields, counts."""

from __future__ import annotations

from .emitter import Emitter
from .ptx_parser import Instruction, parse_integer
from .ptx_types import PRED, TYPES, U32, PtxType
from .registry import Modifiers, Unsupported, computes, instruction


@computes("and", "or", "xor", "not")
def logic(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    mods.done()
    values = [e.read(operand, ptx_type) for operand in ins.operands[1:]]
    if ins.opcode[0] == "not":
        value = f"!{values[0]}" if ptx_type is PRED else f"{ptx_type.cpp}(~{values[0]})"
    else:
        symbol = {"and": "&", "or": "|", "xor": "^"}[ins.opcode[0]]
        value = f"{ptx_type.cpp}({values[0]} {symbol} {values[1]})"
    return (ptx_type, value)


@computes("cnot")
def cnot(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    mods.done()
    return (ptx_type, f"{ptx_type.cpp}({e.read(ins.operands[1], ptx_type)} == 0)")


@computes("lop3")
def lop3(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    mods.take("b32")
    mods.done()
    values = ", ".join(e.read(operand, U32) for operand in ins.operands[1:4])
    return (U32, f"lop3({values}, {parse_integer(ins.operands[4])})")


@computes("shl", "shr")
def shift(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    mods.done()
    value, amount = e.read(ins.operands[1], ptx_type), e.read(ins.operands[2], U32)
    return (ptx_type, f"{ins.opcode[0]}<{ptx_type.cpp}>({value}, {amount})")


@computes("shf")
def funnel_shift(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    direction, mode = mods.take("l", "r"), mods.take("wrap", "clamp")
    mods.take("b32")
    mods.done()
    low, high, amount = (e.read(operand, U32) for operand in ins.operands[1:4])
    amount = f"({amount} & 31)" if mode == "wrap" else f"({amount} < 32 ? {amount} : 32u)"
    name = {"l": "left", "r": "right"}[direction]
    return (U32, f"funnel_shift_{name}({low}, {high}, {amount})")


@computes("bfe")
def bit_field_extract(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    mods.done()
    value = e.read(ins.operands[1], ptx_type)
    position, length = (e.read(operand, U32) for operand in ins.operands[2:4])
    return (ptx_type, f"bfe<{ptx_type.cpp}>({value}, {position}, {length})")


@computes("bfi")
def bit_field_insert(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    mods.done()
    field, base = (e.read(operand, ptx_type) for operand in ins.operands[1:3])
    position, length = (e.read(operand, U32) for operand in ins.operands[3:5])
    return (ptx_type, f"bfi<{ptx_type.cpp}>({field}, {base}, {position}, {length})")


@computes("prmt")
def permute(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    mods.take("b32")
    mods.done()
    return (U32, f"prmt({', '.join(e.read(o, U32) for o in ins.operands[1:4])})")


@computes("popc", "clz", "brev", "bfind")
def count_bits(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    shift_amount = mods.take("shiftamt")
    mods.done()
    value = e.read(ins.operands[1], ptx_type)
    opcode = ins.opcode[0]
    if opcode == "popc":
        result = f"u32(__builtin_popcountll({value}))"
    elif opcode == "clz":
        result = f"count_leading_zeros<{ptx_type.cpp}>({value})"
    elif opcode == "bfind":
        result = f"bfind<{ptx_type.cpp}>({value})"
        if shift_amount:
            result = f"({value} == 0 ? ~0u : {ptx_type.bits - 1}u - {result})"
    elif opcode == "brev" and ptx_type.bits == 32:
        result = f"reverse_bits({value})"
    else:
        raise Unsupported(f"{opcode} of {ptx_type.name}")
    return (U32, result)


@instruction("mov")
def mov(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    mods.done()
    destination, source = ins.operands
    unsigned = TYPES[f"u{ptx_type.bits}"] if ptx_type.bits > 1 else ptx_type
    if source.startswith("{"):
        parts = e.vector(source)
        part = TYPES[f"u{ptx_type.bits // len(parts)}"]
        shifted = [
            f"{unsigned.cpp}({unsigned.cpp}({e.read(item, part)}) << {i * part.bits})"
            for i, item in enumerate(parts)
        ]
        e.write(destination, unsigned, f"{unsigned.cpp}({' | '.join(shifted)})")
    elif destination.startswith("{"):
        parts = e.vector(destination)
        part = TYPES[f"u{ptx_type.bits // len(parts)}"]
        e.emit(f"{{ const {unsigned.cpp} whole = {e.read(source, unsigned)};")
        for i, item in enumerate(parts):
            e.write(item, part, f"{part.cpp}(whole >> {i * part.bits})")
        e.emit("}")
    else:
        e.write(destination, ptx_type, e.read(source, ptx_type))
