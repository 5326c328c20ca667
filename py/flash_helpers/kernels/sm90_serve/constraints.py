"""Why a serving configuration of the Hopper family cannot be built, as sentences."""

from dataclasses import replace

from ..sm90_fwd.constraints import violations as forward_violations
from ..sm90_target import SHARED_MEMORY_BYTES, architecture_violations
from .config import HopperServeKernelConfig

HEAD_DIMENSIONS = (64, 96, 128, 192, 256)


def violations(config: HopperServeKernelConfig, arch: tuple[int, int] | None = None) -> list[str]:
    """One sentence for each reason; an empty list: it can be built (for `arch`, if given)."""
    # The forward pass has no four groups: their threads have just the registers of this shape.
    narrow = (config.d_head, config.block_n, config.n_mma_groups) == (64, 64, 4)
    counted = replace(config, n_mma_groups=3) if narrow and config.narrow_window else config
    found = forward_violations(counted.forward())
    if config.d_head not in HEAD_DIMENSIONS:
        choices = " or ".join(map(str, HEAD_DIMENSIONS))
        found = [f"d_head = {config.d_head} is not supported: it must be {choices}."]
    if config.narrow_v and config.d_head != 192:
        found.append(f"narrow_v is for d_head = 192, not {config.d_head}.")
    if config.narrow_window and not narrow:
        found.append("narrow_window is for d_head = 64, block_n = 64 and n_mma_groups = 4.")
    if not found and config.smem_bytes() > SHARED_MEMORY_BYTES:
        found = [
            f"Q, O and {config.n_buffers} buffers for K and V need {config.smem_bytes()} bytes of "
            f"shared memory, but a thread block has at most {SHARED_MEMORY_BYTES}."
        ]
    return [*found, *architecture_violations(arch, "the Hopper serving family")]
