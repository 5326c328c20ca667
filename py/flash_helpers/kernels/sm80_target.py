"""The oldest target that has what every family needs: what the Ampere families say of others."""

from .architecture import SHARED_MEMORY_PER_BLOCK, UNKNOWN_ARCH_SHARED_MEMORY, dotted

MINIMUM_ARCH = (8, 0)  # cp.async, ldmatrix and the bf16 mma


def architecture_violations(what: str, needed: int, arch: tuple[int, int] | None) -> list[str]:
    """Why kernels in which `what` need so many bytes of shared memory cannot be built for `arch`
    (None: for any architecture)."""
    if arch is None:
        where, limit = "any architecture", max(SHARED_MEMORY_PER_BLOCK.values())
    elif arch < MINIMUM_ARCH:
        needs = f"cp.async, ldmatrix and bf16 mma need {dotted(MINIMUM_ARCH)} or later"
        return [f"Architecture {dotted(arch)} is not supported: {needs}."]
    else:
        where = f"architecture {dotted(arch)}"
        limit = SHARED_MEMORY_PER_BLOCK.get(arch, UNKNOWN_ARCH_SHARED_MEMORY)
    if needed <= limit:
        return []
    return [
        f"{what} need {needed} bytes of shared memory, but a thread block on {where} has at most "
        f"{limit}."
    ]


def refusal(capability: tuple[int, int] | None) -> str | None:
    """Why the kernels do not run on this GPU."""
    if capability is None or capability >= MINIMUM_ARCH:
        return None
    needed, found = dotted(MINIMUM_ARCH), dotted(capability)
    return f"it needs compute capability {needed}, and this GPU has {found}"
