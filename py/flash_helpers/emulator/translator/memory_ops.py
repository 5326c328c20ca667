"""Loads, stores, atomics, address conversion and cp.async."""

from __future__ import annotations

from ..sm90 import ops as sm90
from .emitter import Address, Emitter
from .ptx_parser import Instruction, parse_integer
from .ptx_types import PRED, U32, U64, PtxType
from .registry import Modifiers, Unsupported, computes, instruction

# Cache and ordering hints: every access here is already as strong as the strongest.
HINTS = (
    *("ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "volatile", "weak", "relaxed", "acquire"),
    *("release", "acq_rel", "sc", "cta", "cluster", "gpu", "sys", "noftz"),
    *("L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last"),
    *("L1::no_allocate", "L2::64B", "L2::128B", "L2::256B", "L2::evict_first", "L2::evict_last"),
    "L2::evict_normal",
)
_SHARED = ("shared", "shared::cta")


def _space(mods: Modifiers) -> str:
    space = mods.take("global", *_SHARED, "local", "param", "const")
    return "shared" if space in _SHARED else space


def pointer(
    e: Emitter, ins: Instruction, space: str, operand: str, n_bytes: int, access: str
) -> str:
    """The expression of a checked host pointer."""
    address = e.address(operand, wide=space != "shared")
    if address.parameter is not None:
        return _parameter_pointer(address, n_bytes, access)
    if {"acquire", "release", "acq_rel"} & set(ins.opcode) and "cta" not in ins.opcode:
        e.orders_blocks = True
    if space in ("", "global", "shared"):
        e.smallest_access = min(e.smallest_access, n_bytes)
    function = {"": "generic", "param": "global", "const": "global"}.get(space, space)
    return f"{function}_pointer<{n_bytes}>(L, {address.expression}, Access::{access}, {ins.line})"


def _parameter_pointer(address: Address, n_bytes: int, access: str) -> str:
    parameter = address.parameter
    assert parameter is not None
    if access != "kRead":
        raise Unsupported("write to a parameter")
    if address.offset < 0 or address.offset + n_bytes > parameter.n_bytes:
        raise Unsupported(
            f"reads byte {address.offset} of the {parameter.n_bytes}-byte {parameter.name}"
        )
    return f"L->params + {parameter.offset + address.offset}"


@instruction("ld", "ldu")
def ld(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    count = {"": 1, "v2": 2, "v4": 4}[mods.take("v2", "v4")]
    space = _space(mods)
    mods.drop(*HINTS)
    mods.done()
    results = e.vector(ins.operands[0])
    if len(results) != count or len(ins.operands) != 2:
        raise Unsupported("operands")
    source = pointer(e, ins, space, ins.operands[1], count * ptx_type.n_bytes, "kRead")
    if count == 1:
        e.write(results[0], ptx_type, f"load<{ptx_type.cpp}>({source})")
        return
    e.emit(f"{{ const u8* p = {source};")
    for i, result in enumerate(results):
        if result != "_":
            e.write(result, ptx_type, f"load<{ptx_type.cpp}>(p + {i * ptx_type.n_bytes})")
    e.emit("}")


@instruction("st")
def st(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    count = {"": 1, "v2": 2, "v4": 4}[mods.take("v2", "v4")]
    space = _space(mods)
    mods.drop(*HINTS)
    mods.done()
    if space == "param":
        return  # the argument of a call
    values = e.vector(ins.operands[1])
    if len(values) != count or len(ins.operands) != 2:
        raise Unsupported("operands")
    e.emit(
        f"{{ u8* p = {pointer(e, ins, space, ins.operands[0], count * ptx_type.n_bytes, 'kWrite')};"
    )
    for i, value in enumerate(values):
        e.emit(f"store<{ptx_type.cpp}>(p + {i * ptx_type.n_bytes}, {e.read(value, ptx_type)});")
    e.emit("}")


def _atomic_update(operation: str, ptx_type: PtxType, values: list[str]) -> str:
    simple = {"add": "+", "and": "&", "or": "|", "xor": "^"}
    cpp = ptx_type.cpp
    if operation in simple:
        left, right = ("old", values[0])
        if ptx_type.is_integer:
            left, right = f"u{ptx_type.bits}(old)", f"u{ptx_type.bits}({values[0]})"
        return f"{cpp}({left} {simple[operation]} {right})"
    if operation in ("min", "max"):
        if ptx_type.is_float:
            return f"f{operation}(old, {values[0]})"
        return f"(old {'<' if operation == 'min' else '>'} {values[0]} ? old : {values[0]})"
    if operation in ("inc", "dec"):
        return f"atomic_{operation}<{cpp}>(old, {values[0]})"
    if operation == "cas":
        return f"(old == {values[0]} ? {values[1]} : old)"
    return values[0]  # exch


@instruction("atom", "red")
def atomic(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    operation = mods.take("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
    space = _space(mods)
    mods.drop(*HINTS)
    mods.done()
    if not operation or not (ptx_type.is_float or ptx_type.is_integer) or ptx_type.bits < 32:
        raise Unsupported("this atomic operation")
    operands = ins.operands if ins.opcode[0] == "atom" else ("_", *ins.operands)
    if space != "shared":
        e.uses_global_atomics = True
    target = pointer(e, ins, space, operands[1], ptx_type.n_bytes, "kAtomic")
    update = _atomic_update(operation, ptx_type, [e.read(item, ptx_type) for item in operands[2:]])
    template = f"{ptx_type.cpp}, u{ptx_type.bits}"
    function = f"[&]({ptx_type.cpp} old) {{ (void)old; return {update}; }}"
    e.write(operands[0], ptx_type, f"atomic_update<{template}>({target}, {function})")


@computes("cvta")
def cvta(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    mods.take("u64")
    to_space = bool(mods.take("to"))
    space = _space(mods)
    mods.done()
    value = e.read(ins.operands[1], U64)
    if space in ("shared", "local"):
        window = "kSharedWindow" if space == "shared" else "kLocalWindow"
        value = f"u64(u32({value}))" if to_space else f"({value} | {window})"
    return U64, value


@computes("isspacep")
def isspacep(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    space = _space(mods)
    mods.done()
    value = e.read(ins.operands[1], U64)
    test = {
        "shared": f"({value} & kSharedWindow) != 0",
        "local": f"({value} & kLocalWindow) != 0",
        "global": f"({value} & (kSharedWindow | kLocalWindow)) == 0",
    }.get(space)
    if test is None:
        raise Unsupported(f"isspacep.{space}")
    return PRED, test


@instruction("prefetch", "prefetchu", "discard", "membar", "fence", "nanosleep")
def no_effect(e: Emitter, ins: Instruction) -> None:
    """Hints, and orderings that a sequentially executed block has anyway."""
    if ins.opcode[0] == "fence" and sm90.fence(e, ins):
        return
    e.orders_blocks |= ins.opcode[0] in ("membar", "fence") and "cta" not in ins.opcode


@instruction("cp")
def cp_async(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    if not mods.take("async") or mods.take("mbarrier"):
        raise Unsupported("this form of cp")
    if mods.take("bulk"):
        sm90.bulk_copy(e, ins, mods)
        return
    if mods.take("commit_group"):
        e.emit("cp_async_commit(L);")
    elif mods.take("wait_group"):
        e.emit(f"cp_async_wait_group(L, {e.read(ins.operands[0], U32)});")
    elif mods.take("wait_all"):
        e.emit("cp_async_wait_all(L);")
    else:
        _copy(e, ins, mods)
    mods.done()


def _copy(e: Emitter, ins: Instruction, mods: Modifiers) -> None:
    level = mods.take("ca", "cg")
    mods.take(*_SHARED)
    mods.take("global")
    mods.drop("L2::64B", "L2::128B", "L2::256B")
    n_bytes = parse_integer(ins.operands[2])
    if n_bytes not in ((16,) if level == "cg" else (4, 8, 16)):
        raise Unsupported(f"cp.async.{level} of {n_bytes} bytes")
    target = e.address(ins.operands[0], wide=False).expression
    source = e.address(ins.operands[1]).expression
    size = e.read(ins.operands[3], U32) if len(ins.operands) > 3 else str(n_bytes)
    e.emit(f"cp_async(L, {n_bytes}, {target}, {source}, {size}, {ins.line});")
