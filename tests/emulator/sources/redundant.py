"""Bugs that no check can find because they change nothing that a user could notice, with the
reason. A line that is changed, moved or gone needs its reason looked at again: a test asks that
each still names a bug that the generator makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .mutants import SourceMutant


@dataclass(frozen=True)
class Reason:
    """`before`: part of the line without the bug; `after`: part of what becomes of it, or of the
    kind of bug; `function`: where it stands, '' for anywhere in the file."""

    family: str
    file: str
    function: str
    before: str
    after: str
    why: str

    def explains(self, family: str, mutant: SourceMutant) -> bool:
        return (
            self.family in (family, "")
            and mutant.file == self.file
            and self.function in ("", mutant.function)
            and self.before in mutant.before
            and (self.after in mutant.after or self.after == mutant.kind)
        )


REASONS: tuple[Reason, ...] = ()


def reason_for(
    family: str, mutant: SourceMutant, reasons: Sequence[Reason] | None = None
) -> Reason | None:
    known = REASONS if reasons is None else reasons
    return next((reason for reason in known if reason.explains(family, mutant)), None)
