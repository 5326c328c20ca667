"""The form of an instruction: its modifiers, and what is not translated."""

from .ptx_parser import Instruction
from .ptx_types import TYPES, PtxType


class Unsupported(Exception):
    """This form of an instruction is not translated; the caller adds line and text."""


class Modifiers:
    """The dotted parts after an opcode. A translator takes those it understands; what is left at
    the end makes the instruction unsupported, so that no meaning is dropped silently."""

    def __init__(self, ins: Instruction) -> None:
        self.left = list(ins.opcode[1:])

    def take(self, *names: str) -> str:
        """The first of these names that is present, removed; '' if none is."""
        for name in names:
            if name in self.left:
                self.left.remove(name)
                return name
        return ""

    def require(self, *names: str) -> None:
        for name in names:
            if not self.take(name):
                raise Unsupported(f"without .{name}")

    def drop(self, *names: str) -> None:
        """Removes hints that change no result."""
        self.left = [item for item in self.left if item not in names]

    def type(self) -> PtxType:
        """The last part, which must be a type."""
        if not self.left or self.left[-1] not in TYPES:
            raise Unsupported("no known type")
        return TYPES[self.left.pop()]

    def done(self) -> None:
        if self.left:
            raise Unsupported("modifier ." + ".".join(self.left))
