"""Synchronisation that a kernel could do without, with the proof: planted mutants of it change
nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .mutations import Mutant


@dataclass(frozen=True)
class Redundant:
    """`line` is in the text of one of the source lines that the place was inlined through.
    `when`: of which kernels it is true, by what the campaign knows them by (a configuration, or one
    and a variant)."""

    mutant: str  # how Mutant.name begins
    line: str
    proof: str
    when: Callable[..., bool] = lambda *kernel: True

    def explains(self, mutant: Mutant, source: Sequence[str], *kernel: object) -> bool:
        return (
            mutant.name.startswith(self.mutant)
            and any(self.line in text for text in source)
            and self.when(*kernel)
        )
