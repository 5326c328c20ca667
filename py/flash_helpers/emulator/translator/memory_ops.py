"""Loads, stores, atomics, address conversion and cp.async."""

from collections.abc import Callable

from .emitter import Emitter, elements
from .forms import Modifiers, Unsupported
from .ptx_parser import Instruction, Parameter, parse_integer
from .ptx_types import U32, U64, PtxType
from .registry import computes, instruction
from .scalar_ops import filled

# Cache and ordering hints: every access here is already as strong as the strongest.
HINTS = (
    *("ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "volatile", "weak", "relaxed", "acquire"),
    *("release", "acq_rel", "sc", "cta", "cluster", "gpu", "sys", "noftz"),
    *("L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last"),
    *("L1::no_allocate", "L2::64B", "L2::128B", "L2::256B", "L2::evict_first", "L2::evict_last"),
    "L2::evict_normal",
)
# Accesses through which blocks may talk to each other, in kernels that have fences for it.
STRONG = ("volatile", "relaxed", "acquire", "release")
# What is stored where `a` was, of the operands b and c.
ATOMICS = {
    "add": "a + b",
    "and": "a & b",
    "or": "a | b",
    "xor": "a ^ b",
    "exch": "b",
    "min": "a < b ? a : b",
    "max": "a > b ? a : b",
    "cas": "a == b ? c : a",
    "inc": "a >= b ? 0 : a + 1",
    "dec": "a == 0 || a > b ? b : a - 1",
}
# What createpolicy returns for all accesses: there is no cache that it could change.
_POLICIES = {"L2::evict_first": "0x12f0000000000000", "L2::evict_last": "0x14f0000000000000"}
_ALL = ("1.0", "0f3F800000")
_PARAMETERS = "u64(L->params)"  # the generic address of what is 0 in the state space .param


def _space(mods: Modifiers) -> str:
    return mods.take("global", "shared", "shared::cta", "local", "param", "const").split("::")[0]


def pointer(
    e: Emitter, ins: Instruction, space: str, operand: str, n_bytes: int, access: str
) -> str:
    """The expression of a checked host pointer."""
    address = e.address(operand, wide=space != "shared")
    if address.parameter is not None:
        return _parameter_pointer(address.parameter, address.offset, n_bytes, access)
    expression = address.expression
    if space == "param":
        expression += f" + {_PARAMETERS}"
    if space in ("", "global", "shared"):
        e.smallest_access = min(e.smallest_access, n_bytes)
    function = {"": "generic", "param": "global", "const": "global"}.get(space, space)
    if not access.endswith("IfOrdered"):
        access = f"Access::{access}"
    return f"{function}_pointer<{n_bytes}>(L, {expression}, {access}, {ins.line})"


def _parameter_pointer(parameter: Parameter, offset: int, n_bytes: int, access: str) -> str:
    if access != "kRead":
        raise Unsupported("write to a parameter")
    if offset < 0 or offset + n_bytes > parameter.n_bytes:
        raise Unsupported(f"reads byte {offset} of the {parameter.n_bytes}-byte {parameter.name}")
    return f"L->params + {parameter.offset + offset}"


def _for_other_blocks(ins: Instruction, space: str) -> bool:
    """Whether others than threads of the block may be meant."""
    return space in ("", "global") and "cta" not in ins.opcode


def _with_fences(e: Emitter, ins: Instruction, space: str, access: Callable[[], None]) -> None:
    """A release or acquire instruction is a relaxed one with a fence before or behind it."""
    releases, acquires = (
        _for_other_blocks(ins, space) and bool({kind, "acq_rel"} & set(ins.opcode))
        for kind in ("release", "acquire")
    )
    e.orders_blocks |= releases or acquires
    if releases:
        e.emit("fence_blocks(L);")
    access()
    if acquires:
        e.emit("fence_blocks(L);")


@instruction("createpolicy")
def cache_policy(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    kind = mods.take(*_POLICIES)
    if not mods.take("fractional") or not kind or not set(ins.operands[1:]) <= set(_ALL):
        raise Unsupported("this policy")
    mods.drop("b64")
    mods.done()
    e.write(ins.operands[0], U64, f"u64({_POLICIES[kind]}ull)")


@instruction("ld", "ldu", "st")
def load_store(e: Emitter, ins: Instruction) -> None:
    space = Modifiers(ins).take("global", "shared", "shared::cta", "local", "param", "const")
    _with_fences(e, ins, space, lambda: _load_store(e, ins))


def _load_store(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    ptx_type = mods.type()
    count = int(mods.take("v2", "v4")[1:] or 1)
    space, stores = _space(mods), ins.opcode[0] == "st"
    hinted = mods.take("L2::cache_hint")
    mods.drop(*HINTS)
    mods.done()
    if stores and space == "param":
        return None  # the argument of a call
    operands = list(ins.operands)
    if hinted:
        e.emit(f"static_cast<void>({e.read(operands.pop(), U64)});")
    place, registers = operands if stores else reversed(operands)
    values, n_bytes = elements(registers), ptx_type.n_bytes
    if len(values) != count:
        raise Unsupported(f"{len(values)} registers")
    access = "kWrite" if stores else "kRead"
    if _for_other_blocks(ins, space) and set(STRONG) & set(ins.opcode):
        access = f"{access}IfOrdered"
    if space == "global":
        e.emit(f"L->global_{'stores' if stores else 'loads'} += 1;")
    host = pointer(e, ins, space, place, count * n_bytes, access)
    if count == 1 and not stores:
        return e.write(values[0], ptx_type, f"load<{ptx_type.cpp}>({host})")
    e.emit(f"{{ auto* p = {host};")
    for i, value in enumerate(values):
        at = f"p + {i * n_bytes}"
        if stores:
            e.emit(f"store<{ptx_type.cpp}>({at}, {e.read(value, ptx_type)});")
        elif value != "_":
            e.write(value, ptx_type, f"load<{ptx_type.cpp}>({at})")
    return e.emit("}")


@instruction("atom", "red")
def atomic(e: Emitter, ins: Instruction) -> None:
    space = Modifiers(ins).take("global", "shared", "shared::cta")
    _with_fences(e, ins, space, lambda: _atomic(e, ins))


def _atomic(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    count = int((mods.take("v2", "v4") or "v1")[1])
    ptx_type, operation, space = mods.type(), mods.take(*ATOMICS), _space(mods)
    mods.drop(*HINTS)
    mods.done()
    if not operation or not (ptx_type.is_float or ptx_type.is_integer) or ptx_type.bits < 32:
        raise Unsupported("this atomic operation")
    e.uses_global_atomics |= space != "shared"
    if count > 1:
        _vector_reduction(e, ins, ptx_type, operation, space, count)
        return
    destination, place, *operands = (
        ins.operands if ins.opcode[0] == "atom" else ("_", *ins.operands)
    )
    target = pointer(e, ins, space, place, ptx_type.n_bytes, "kAtomic")
    values = [e.read(item, ptx_type) for item in operands]
    e.write(destination, ptx_type, _update(ptx_type, operation, space, target, values))


def _update(ptx_type: PtxType, operation: str, space: str, target: str, operands: list[str]) -> str:
    """The call that updates a value; its own is the old one."""
    if (ptx_type.name, operation) == ("f32", "add") and space != "shared":
        # The L2 cache, which adds, takes subnormal numbers for 0 (PTX ISA, atom; seen on an H200).
        function = f"[&](f32 old) {{ return ftz(ftz(old) + ftz({operands[0]})); }}"
        return f"atomic_update<f32, u32>({target}, {function})"
    update = filled(ATOMICS[operation], {"a": "old", **dict(zip("bc", operands, strict=False))})
    function = f"[&]({ptx_type.cpp} old) {{ return {ptx_type.cpp}({update}); }}"
    return f"atomic_update<{ptx_type.cpp}, u{ptx_type.bits}>({target}, {function})"


def _vector_reduction(
    e: Emitter, ins: Instruction, ptx_type: PtxType, operation: str, space: str, count: int
) -> None:
    """Each value by itself."""
    if ins.opcode[0] != "red" or (space, operation, ptx_type.name) != ("global", "add", "f32"):
        raise Unsupported("vectors in this atomic operation")
    place, registers = ins.operands
    host = pointer(e, ins, space, place, count * ptx_type.n_bytes, "kAtomic")
    e.emit(f"{{ auto* p = {host};")
    for i, item in enumerate(elements(registers)):
        target = f"p + {i * ptx_type.n_bytes}"
        e.emit(f"{_update(ptx_type, operation, space, target, [e.read(item, ptx_type)])};")
    e.emit("}")


_WINDOWS = {"shared": "kSharedWindow", "local": "kLocalWindow"}


@computes("cvta")
def cvta(e: Emitter, ins: Instruction) -> tuple[PtxType, str]:
    mods = Modifiers(ins)
    mods.take("u64")
    to_space, space = bool(mods.take("to")), _space(mods)
    mods.done()
    value = e.read(ins.operands[1], U64)
    if space in _WINDOWS:
        value = f"u64(u32({value}))" if to_space else f"({value} | {_WINDOWS[space]})"
    elif space == "param":
        value = f"({value} {'-' if to_space else '+'} {_PARAMETERS})"
    return U64, value


@instruction("prefetch", "prefetchu", "discard", "membar", "fence", "nanosleep")
def no_effect(e: Emitter, ins: Instruction) -> None:
    """Hints, and orderings that a sequentially executed block has anyway: but for the race
    detector, which follows those between blocks."""
    if ins.opcode[0] in ("membar", "fence") and "cta" not in ins.opcode:
        e.orders_blocks = True
        e.emit("fence_blocks(L);")


@instruction("cp")
def cp_async(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    mods.require("async")
    if mods.take("commit_group"):
        e.emit("cp_async_commit(L);")
    elif mods.take("wait_group"):
        e.emit(f"cp_async_wait_group(L, {e.read(ins.operands[0], U32)});")
    elif mods.take("wait_all"):
        e.emit("cp_async_commit(L); cp_async_wait_group(L, 0);")
    elif level := mods.take("ca", "cg"):
        _copy(e, ins, level, hinted=bool(mods.take("L2::cache_hint")))
        mods.drop("shared", "shared::cta", "global", "L2::64B", "L2::128B", "L2::256B")
    return mods.done()


def _copy(e: Emitter, ins: Instruction, level: str, *, hinted: bool) -> None:
    operands = list(ins.operands)
    if hinted:
        e.emit(f"static_cast<void>({e.read(operands.pop(), U64)});")
    n_bytes = parse_integer(operands[2])
    if n_bytes not in ((16,) if level == "cg" else (4, 8, 16)):
        raise Unsupported(f"cp.async.{level} of {n_bytes} bytes")
    target = e.address(operands[0], wide=False).expression
    source = e.address(operands[1]).expression
    size = e.read(operands[3], U32) if len(operands) > 3 else str(n_bytes)
    e.emit(f"cp_async<{n_bytes}>(L, {target}, {source}, {size}, {ins.line});")
