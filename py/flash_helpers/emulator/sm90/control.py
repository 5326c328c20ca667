"""Where branches go: bra, and brx.idx, with which a warp of a warp-specialised kernel finds its
partition."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from ..translator.emitter import Emitter
from ..translator.forms import Modifiers, Unsupported
from ..translator.ptx_parser import Instruction, Scope
from ..translator.ptx_types import U32
from ..translator.registry import instruction


def _label(scopes: Sequence[Scope], name: str) -> tuple[Scope, int]:
    """The place of a label, which belongs to the innermost scope that has it."""
    for scope in reversed(scopes):
        if name in scope.labels:
            return scope, scope.labels[name]
    raise Unsupported(f"unknown label {name}")


def _targets(scopes: Sequence[Scope], ins: Instruction) -> tuple[str, ...]:
    """The names of the labels that a branch may go to."""
    if ins.opcode[0] == "bra":
        return ins.operands[:1]
    scope, position = _label(scopes, ins.operands[1])
    listed = scope.statements[position + 1 : position + 2]
    if not listed or not isinstance(listed[0], Instruction):
        raise Unsupported(f"{ins.operands[1]} names no .branchtargets")
    return listed[0].operands


def branches(body: Scope) -> dict[int, list[int]]:
    """By the id of each branch the ids of the labels that it may go to: compilers give labels of
    different scopes the same name. Of unknown labels nothing: the translator reports them."""
    return dict(_branches([body]))


def _branches(scopes: list[Scope]) -> Iterator[tuple[int, list[int]]]:
    for statement in scopes[-1].statements:
        if isinstance(statement, Scope):
            yield from _branches([*scopes, statement])
        elif isinstance(statement, Instruction) and statement.opcode[0] in ("bra", "brx"):
            with suppress(Unsupported):
                places = [_label(scopes, name) for name in _targets(scopes, statement)]
                yield id(statement), [id(scope.statements[at]) for scope, at in places]


@instruction("branchtargets")
def branch_targets(e: Emitter, ins: Instruction) -> None:
    """Read by brx.idx."""


@instruction("brx")
def brx(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    mods.require("idx")
    mods.drop("uni")
    mods.done()
    labels = [e.label(name) for name in _targets([names.scope for names in e.scopes], ins)]
    if e.labels.intersection(labels):
        e.emit(f"count_backward_branch(L, {ins.line});")
    e.emit(f"switch (const u32 index = {e.read(ins.operands[0], U32)}) {{")
    for index, label in enumerate(labels):
        e.emit(f"case {index}: goto {label};")
    message = f"brx.idx with index %u of {len(labels)} targets"
    e.emit(f'default: fail(L, ErrorKind::kInvalidOperand, {ins.line}, "{message}", index);')
    e.emit("}")
