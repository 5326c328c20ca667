"""Which problems the Ampere family serves, and what its kernels are worth unmeasured."""

from ..architecture import dotted
from ..family import Capability
from ..problem import AttentionProblem
from .config import FlashForwardKernelConfig
from .constraints import ALLOWED_VALUES, MINIMUM_ARCH

HEAD_DIMENSIONS = ALLOWED_VALUES["d_head"]


def preference(capability: Capability | None) -> int:
    return 1


def refusal(problem: AttentionProblem, capability: Capability | None) -> str | None:
    """Why not; None: it serves the problem on such a GPU, or (None) in the emulator."""
    if problem.d_head not in HEAD_DIMENSIONS:
        return f"its head dimensions are {' and '.join(map(str, HEAD_DIMENSIONS))}"
    if capability is not None and capability < MINIMUM_ARCH:
        needed, found = dotted(MINIMUM_ARCH), dotted(capability)
        return f"it needs compute capability {needed}, and this GPU has {found}"
    return None


def promise(config: FlashForwardKernelConfig) -> tuple[object, ...]:
    """Larger is better: the largest block that is built."""
    return config.optimized_softmax, config.B_r, config.B_c
