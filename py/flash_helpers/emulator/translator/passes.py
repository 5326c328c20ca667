"""What may be added to a kernel while it is translated: checks, counts."""

from collections.abc import Callable

from .emitter import Emitter
from .ptx_parser import Entry, Instruction


class Pass:
    """Lines of C++ around a kernel's instructions, and headers that they need. The methods are
    called once for the kernel, then for each instruction in order."""

    includes: tuple[str, ...] = ()

    def at_entry(self) -> list[str]:
        """At the start of the kernel."""
        return []

    def ahead(self, ins: Instruction) -> list[str]:
        """In front of an instruction, whether or not its guard lets it run."""
        return []

    def before(self, ins: Instruction) -> list[str]:
        """Before one that runs."""
        return []

    def after(self, ins: Instruction) -> list[str]:
        """Behind one that has run."""
        return []


# Called with the translation's state before the first instruction.
PassOf = Callable[[Emitter, Entry], Pass]
