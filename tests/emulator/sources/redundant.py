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


_HINT = "a hint: nothing depends on it but speed"
_SCHEDULING = "no instruction that computes: it only keeps compilers from moving others"

REASONS: tuple[Reason, ...] = (
    Reason("sm90", "ptx/tma.cuh", "prefetch_tensormap", "prefetch.tensormap", "deleted", _HINT),
    Reason(
        "sm90", "ptx/tma.cuh", "tma_store_wait_read", "wait_group.read", "modifier dropped",
        "it waits until the stores have written, too: longer, and never too short",
    ),
    Reason("", "ptx/scheduling.cuh", "", "asm volatile", "deleted", _SCHEDULING),
    Reason(
        "sm90", "ptx/setmaxnreg.cuh", "setmaxnreg_inc", "setmaxnreg.inc", "deleted",
        """ptxas then keeps to what the launch gives, 168 registers: kernels with large blocks spill
        (d 128, block_n 128: 240 bytes), which the build refuses (allowed_spills.toml)""",
    ),
    Reason(
        "sm90", "sm90/forward/work.cuh", "", "kOverflow = 7", "kOverflow = 8",
        "three numbers of named barriers that no other has, below 16",
    ),
)  # fmt: skip


def reason_for(
    family: str, mutant: SourceMutant, reasons: Sequence[Reason] | None = None
) -> Reason | None:
    known = REASONS if reasons is None else reasons
    return next((reason for reason in known if reason.explains(family, mutant)), None)
