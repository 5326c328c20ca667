"""wgmma: asynchronous matmuls of four warps.

Accumulators live in arrays, one for every list of registers that a wgmma names, so that the runtime
can write them when the group is committed.
"""

import re
from collections.abc import Iterable, Iterator

from ..translator.emitter import Emitter
from ..translator.forms import Modifiers, Unsupported
from ..translator.ptx_parser import Entry, Instruction, Scope
from ..translator.ptx_types import F32, PRED, U32, U64
from ..translator.registry import instruction

_SHAPE = re.compile(r"m64n(\d+)k16")
MAX_COLUMNS = 256


def instructions(scope: Scope) -> Iterator[Instruction]:
    for statement in scope.statements:
        if isinstance(statement, Scope):
            yield from instructions(statement)
        elif isinstance(statement, Instruction):
            yield statement


def scopes(scope: Scope) -> Iterator[Scope]:
    yield scope
    for statement in scope.statements:
        if isinstance(statement, Scope):
            yield from scopes(statement)


def _family(name: str) -> str:
    """What .reg %f<9> is known by (ptx_parser.Scope.registers)."""
    return name.rstrip("0123456789") + "<"


def _declared(where: Iterable[Scope]) -> set[str]:
    return {name for scope in where for name in scope.registers}


def elements(operand: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in operand.strip("{} \n\t").split(","))


def is_matmul(ins: Instruction) -> bool:
    return ins.opcode[:2] == ("wgmma", "mma_async")


def place_accumulators(e: Emitter, entry: Entry) -> list[str]:
    """Gives the accumulators of all wgmma their arrays; returns the declarations. Registers that
    two lists share, or that are not the kernel's own, stay what they are."""
    lists = dict.fromkeys(
        elements(ins.operands[0]) for ins in instructions(entry.body) if is_matmul(ins)
    )
    uses: dict[str, int] = {}
    for registers in lists:
        for name in registers:
            uses[name] = uses.get(name, 0) + 1
    inner = _declared(scope for scope in scopes(entry.body) if scope is not entry.body)
    own = _declared([entry.body]) - inner
    lines = []
    for registers in lists:
        if any(uses[name] > 1 or not {name, _family(name)} & own for name in registers):
            continue
        array = f"accumulators{len(e.accumulators)}"
        e.accumulators[registers] = array
        for i, name in enumerate(registers):
            e.aliases[e.root_name(name)] = f"{array}[{i}]"
        lines.append(f"alignas(64) f32 {array}[{len(registers)}];")
        lines.append(f"__builtin_memset({array}, 0xFF, sizeof {array});")
        e.register_bytes += 4 * len(registers)
    return lines


@instruction("wgmma")
def wgmma(e: Emitter, ins: Instruction) -> None:
    e.uses_sm90 = True
    mods = Modifiers(ins)
    action = mods.take("mma_async", "fence", "commit_group", "wait_group")
    for required in ("sync", "aligned"):
        if not mods.take(required):
            raise Unsupported(f"wgmma without .{required}")
    if action == "mma_async":
        _matmul(e, ins, mods)
        return
    mods.done()
    pending = f"{e.read(ins.operands[0], U32)}, " if action == "wait_group" else ""
    e.emit(f"wgmma_{action}(L, {pending}{ins.line});")


def _matmul(e: Emitter, ins: Instruction, mods: Modifiers) -> None:
    shape = _SHAPE.fullmatch(mods.left[0]) if mods.left else None
    columns = int(shape[1]) if shape else 0
    types = mods.left[1:]
    if not 8 <= columns <= MAX_COLUMNS or columns % 8:
        raise Unsupported(f"wgmma of shape .{mods.left[0] if mods.left else ''}")
    if types not in (["f32", "f16", "f16"], ["f32", "bf16", "bf16"]):
        raise Unsupported("wgmma types ." + ".".join(types))
    d, a, b = ins.operands[:3]
    from_registers = a.startswith("{")
    accumulates, *immediates = ins.operands[3:]
    if len(immediates) != (3 if from_registers else 4) or len(elements(d)) != columns // 2:
        raise Unsupported("operands of wgmma")
    sign_a, sign_b, *transposed = immediates
    if from_registers:
        transposed = ["0", *transposed]
    flags = ", ".join("true" if flag == "1" else "false" for flag in transposed)
    form = (
        f"{{MmaType::{'kF16' if types[1] == 'f16' else 'kBf16'}, {columns}, "
        f"{'true' if from_registers else 'false'}, {flags}, {sign_a}, {sign_b}}}"
    )
    e.emit("{")
    if from_registers:
        e.emit(f"const u32 a[4] = {{{', '.join(e.read(item, U32) for item in elements(a))}}};")
    else:
        e.emit(f"const u64 a[1] = {{{e.read(a, U64)}}};")
    array = e.accumulators.get(elements(d))
    if array is None:
        e.emit(f"f32 d[] = {{{', '.join(e.read(item, F32) for item in elements(d))}}};")
    rest = f"{e.read(b, U64)}, {e.read(accumulates, PRED)}, {ins.line}"
    e.emit(f"wgmma(L, WgmmaForm{form}, {array or 'd'}, a, {rest});")
    if array is None:
        e.emit(f"wgmma_execute(L, {ins.line});")
        for i, item in enumerate(elements(d)):
            e.write(item, F32, f"d[{i}]")
    e.emit("}")
