"""Branches, and the ends of a kernel."""

from .emitter import Emitter
from .forms import Modifiers, Unsupported
from .ptx_parser import Instruction
from .registry import instruction


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


@instruction("trap", "call")
def trap(e: Emitter, ins: Instruction) -> None:
    """Kernels are inlined whole; what is left of calls is a failed assert()."""
    if ins.opcode[0] == "call" and "__assertfail" not in ins.operands:
        raise Unsupported("calls")
    message = "the kernel executed trap, or an assertion failed"
    e.emit(f'fail(L, ErrorKind::kTrap, {ins.line}, "{message}");')
