"""Which function translates which opcode."""

from collections.abc import Callable

from .emitter import Emitter
from .ptx_parser import Instruction
from .ptx_types import PtxType

Handler = Callable[[Emitter, Instruction], None]
# A translator of an instruction with one result, the first operand: its type and C++ expression.
ValueHandler = Callable[[Emitter, Instruction], tuple[PtxType, str]]
HANDLERS: dict[str, Handler] = {}


def handler_of(ins: Instruction) -> Handler | None:
    """That of the longest beginning of the opcode that has one."""
    parts = ins.opcode
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((HANDLERS[name] for name in names if name in HANDLERS), None)


def instruction(*opcodes: str) -> Callable[[Handler], Handler]:
    """Registers the translator of these opcodes: cp has all that begin so, but for those of
    cp.async.bulk if that is registered too."""

    def register(handler: Handler) -> Handler:
        for opcode in opcodes:
            if opcode in HANDLERS:
                raise ValueError(f"two translators for {opcode}")
            HANDLERS[opcode] = handler
        return handler

    return register


def computes(*opcodes: str) -> Callable[[ValueHandler], ValueHandler]:
    """The same for instructions that compute one result."""

    def register(handler: ValueHandler) -> ValueHandler:
        def write(e: Emitter, ins: Instruction) -> None:
            ptx_type, expression = handler(e, ins)
            e.write(ins.operands[0], ptx_type, expression)

        instruction(*opcodes)(write)
        return handler

    return register
