"""What differs between the machine code of two kernels."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from .classes import count_classes, count_opcodes
from .listing import Instruction, Listing

_REGISTER = re.compile(r"\b(UR|UP|R|P)(\d+)\b")
_PTX_INSTRUCTION = re.compile(r"(?:@!?%p\d+\s+)?[a-z][a-z0-9_]*(?:\.[A-Za-z0-9_:]+)*\s[^;]*;")
_PTX_PARAMETER = re.compile(r"\bflash_fwd_\w+?_param_")
_PTX_NUMBER = re.compile(r"(%[a-z]+|\$L__\w+?_)\d+(?:_\d+)?")
_ADDRESS = re.compile(r"0x[0-9a-f]+\s*$")


@dataclass(frozen=True)
class Change:
    """`name`: a class or an opcode."""

    name: str
    before: int
    after: int

    @property
    def difference(self) -> int:
        return self.after - self.before


@dataclass(frozen=True)
class Comparison:
    before: Listing
    after: Listing
    where: str  # kernel or loop

    @property
    def classes(self) -> list[Change]:
        old, new = (count_classes(listing.part(self.where)) for listing in self._both)
        return [Change(name, old[name], new[name]) for name in old if old[name] or new[name]]

    @property
    def opcodes(self) -> list[Change]:
        """The opcodes whose number differs, the largest difference first."""
        old, new = (count_opcodes(listing.part(self.where)) for listing in self._both)
        changes = [Change(name, old.get(name, 0), new.get(name, 0)) for name in {**old, **new}]
        differing = [change for change in changes if change.difference]
        return sorted(differing, key=lambda change: (-abs(change.difference), change.name))

    @property
    def identical(self) -> bool:
        """The same instructions on the same registers."""
        old, new = (list(map(str, listing.part(self.where))) for listing in self._both)
        return old == new

    @property
    def same_but_for_registers(self) -> bool:
        old, new = (normalised(listing.part(self.where)) for listing in self._both)
        return old == new

    def diff(self, context: int = 2) -> list[str]:
        """A unified diff of the opcodes and operands, without register numbers and addresses:
        what moved because of another allocation does not count."""
        old, new = (normalised(listing.part(self.where)) for listing in self._both)
        was, now = (f"{listing.name} ({listing.architecture})" for listing in self._both)
        return list(difflib.unified_diff(old, new, was, now, lineterm="", n=context))

    @property
    def _both(self) -> tuple[Listing, Listing]:
        return self.before, self.after


def ptx_diff(before: str, after: str, context: int = 2) -> list[str]:
    """A unified diff of two PTX texts: instructions without register numbers, labels and the
    kernel's name. What ptxas undoes (the order of loads) shows here alone."""
    old, new = (normalised_ptx(text) for text in (before, after))
    return list(difflib.unified_diff(old, new, "PTX before", "PTX after", lineterm="", n=context))


def normalised_ptx(text: str) -> list[str]:
    found = (_PTX_INSTRUCTION.match(line.strip()) for line in text.splitlines())
    lines = (_PTX_PARAMETER.sub("param_", match[0]) for match in found if match)
    return [" ".join(_PTX_NUMBER.sub(r"\1", line).split()) for line in lines]


def normalised(instructions: Sequence[Instruction]) -> list[str]:
    """Text with register numbers and branch targets left out."""
    lines = []
    for i in instructions:
        text = _REGISTER.sub(r"\1", str(i))
        lines.append(_ADDRESS.sub("…", text) if i.target is not None else text)
    return lines
