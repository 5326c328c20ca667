"""Synchronisation that a kernel could do without, with the proof: planted mutants of it change
nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flash_helpers.emulator.door.source_lines import SourceLines, SourceLocation

from .mutations import Mutant


@dataclass(frozen=True)
class Redundant:
    """`line` is in the text of one of the source lines that the place was inlined through, and so
    is `within`. `when`: of which kernels it is true, by what the campaign knows them by (a
    configuration, or one and a variant)."""

    mutant: str  # how Mutant.name begins
    line: str
    proof: str
    when: Callable[..., bool] = lambda *kernel: True
    within: str = ""

    def explains(self, mutant: Mutant, source: Sequence[str], *kernel: object) -> bool:
        return (
            mutant.name.startswith(self.mutant)
            and any(self.line in text for text in source)
            and (not self.within or any(self.within in text for text in source))
            and self.when(*kernel)
        )


def planted(
    ptx: str,
    mutants: Sequence[Mutant],
    unseen: Sequence[Redundant],
    sources: Callable[[SourceLocation], list[str]],
    *kernel: object,
) -> list[Mutant]:
    """Without those that no schedule of the emulator can show, though the kernel needs what they
    leave out: `unseen`, with the reason in place of the proof."""
    lines = SourceLines(ptx)

    def is_seen(mutant: Mutant) -> bool:
        texts = sources(lines.locate(mutant.line))
        return not any(item.explains(mutant, texts, *kernel) for item in unseen)

    return [mutant for mutant in mutants if is_seen(mutant)]
