"""Which problems the Hopper family serves, and what its kernels are worth unmeasured."""

from ..architecture import dotted
from ..family import Capability
from ..problem import AttentionProblem
from .config import HopperForwardKernelConfig
from .constraints import ARCHITECTURE, HEAD_DIMENSIONS


def preference(capability: Capability | None) -> int:
    """First on its own GPUs; else where no other family serves the problem."""
    return 2 if capability == ARCHITECTURE else 0


def refusal(problem: AttentionProblem, capability: Capability | None) -> str | None:
    """Why not; None: it serves the problem on such a GPU, or (None) in the emulator."""
    if problem.d_head not in HEAD_DIMENSIONS:
        return f"its head dimensions are {', '.join(map(str, HEAD_DIMENSIONS))}"
    if capability not in (None, ARCHITECTURE):
        needed, found = dotted(ARCHITECTURE), dotted(capability)
        return f"it needs compute capability {needed}, and this GPU has {found}"
    return None


def promise(config: HopperForwardKernelConfig) -> tuple[object, ...]:
    """Larger is better: every overlap, then the most work for each tile of shared memory."""
    return (
        config.overlap,
        config.ping_pong,
        config.max_policy,
        config.block_m() * config.block_n,
        config,
    )
