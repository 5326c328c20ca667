"""Branches and the end of a thread."""

from __future__ import annotations

from .emitter import Emitter
from .ptx_parser import Instruction
from .registry import Modifiers, Unsupported, instruction


@instruction("bra")
def bra(e: Emitter, ins: Instruction) -> None:
    mods = Modifiers(ins)
    mods.drop("uni")
    mods.done()
    label = e.label(ins.operands[0])
    if label in e.labels:
        e.emit(f"count_backward_branch(L, {ins.line});")
    e.emit(f"goto {label};")


@instruction("ret", "exit")
def ret(e: Emitter, ins: Instruction) -> None:
    e.emit("return;")


@instruction("trap")
def trap(e: Emitter, ins: Instruction) -> None:
    e.emit(f"fail_trap(L, {ins.line});")


@instruction("call")
def call(e: Emitter, ins: Instruction) -> None:
    """Kernels are inlined whole; what is left is a failed assert()."""
    if "__assertfail" not in ins.operands:
        raise Unsupported("calls")
    e.emit(f"fail_trap(L, {ins.line});")
