"""The one target with wgmma and setmaxnreg: what families that need them say of other GPUs."""

from collections.abc import Sequence
from typing import ClassVar

from .architecture import dotted
from .family import Capability, Family
from .problem import AttentionProblem

# TMA, wgmma and setmaxnreg in the forms that the kernels use are instructions of sm_90a alone.
ARCHITECTURE = (9, 0)
SHARED_MEMORY_BYTES = 227 * 1024


def architecture_violations(arch: tuple[int, int] | None, family: str) -> list[str]:
    """Why a family's kernels cannot be built for `arch`; none if that is not asked."""
    if arch in (None, ARCHITECTURE):
        return []
    return [
        f"Architecture {dotted(arch)} is not supported: {family} needs wgmma and "
        "setmaxnreg, which 9.0 (sm_90a) alone has."
    ]


def refusal(
    head_dimensions: Sequence[int], d_head: int, capability: tuple[int, int] | None
) -> str | None:
    """Why kernels of these head dimensions do not serve a problem of this one, on this GPU."""
    if d_head not in head_dimensions:
        return f"its head dimensions are {', '.join(map(str, head_dimensions))}"
    if capability not in (None, ARCHITECTURE):
        needed, found = dotted(ARCHITECTURE), dotted(capability)
        return f"it needs compute capability {needed}, and this GPU has {found}"
    return None


class OnHopper(Family):
    """A family whose kernels run on Hopper GPUs alone."""

    TARGETS: ClassVar[tuple[str, ...] | None] = ("90a",)

    def preference(self, capability: Capability | None) -> int:
        """First on its own GPUs; else where no other family serves the problem."""
        return 2 if capability == ARCHITECTURE else 0

    def refusal(self, problem: AttentionProblem, capability: Capability | None) -> str | None:
        return refusal(self.HEAD_DIMENSIONS, problem.d_head, capability)
