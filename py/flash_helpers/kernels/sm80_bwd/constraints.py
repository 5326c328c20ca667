"""Why a backward configuration of the Ampere family cannot be built, as sentences."""

from ..architecture import (
    MAX_REGISTERS_PER_THREAD,
    WARP_SIZE,
)
from ..backward_config import unsupported_values
from ..contract import Variant
from ..sm80_target import architecture_violations
from .config import AmpereBackwardKernelConfig

ROWS = (32, 64, 128)  # they divide the rows that RowStats are filled up to
COLUMNS = (16, 32, 64, 128)
WARPS = (2, 4, 8)
MMA_M = 16  # rows of one mma


def violations(
    config: AmpereBackwardKernelConfig, arch: tuple[int, int] | None = None
) -> list[str]:
    """One sentence for each reason; an empty list: it can be built (for `arch`, if given)."""
    found = _value_violations(config)
    if not found:
        found = [*_row_violations(config), *_register_violations(config)]
    needed = max(config.smem_of(variant) for variant in config.variants())
    blocks = "The blocks that stay and those that pass by"
    return [*found, *architecture_violations(blocks, needed, arch)]


def _value_violations(config: AmpereBackwardKernelConfig) -> list[str]:
    allowed: dict[str, tuple[int, ...]] = {"d_head": config.HEAD_DIMENSIONS}
    for side in ("keys", "queries"):
        allowed |= {f"{side}_rows": ROWS, f"{side}_columns": COLUMNS, f"{side}_warps": WARPS}
    return unsupported_values(config, allowed)


def _row_violations(config: AmpereBackwardKernelConfig) -> list[str]:
    return [
        f"{variant.value}_rows = {rows} is not divisible by {MMA_M * warps}: each of the {warps} "
        f"warps takes whole tiles of {MMA_M} rows."
        for variant in (Variant.KEYS, Variant.QUERIES)
        for rows, _, warps in [config.shape(variant)]
        if rows % (MMA_M * warps)
    ]


def _register_violations(config: AmpereBackwardKernelConfig) -> list[str]:
    """Only what does not fit the registers by itself: every mma would go through local memory."""
    found = []
    for variant, sums in ((Variant.KEYS, 1 if config.sums_in_turn() else 2), (Variant.QUERIES, 1)):
        rows, columns, warps = config.shape(variant)
        count = rows // warps * (sums * config.d_head + 2 * columns) // WARP_SIZE
        if count > MAX_REGISTERS_PER_THREAD:
            found.append(
                f"The gradients and scores of the kernel {variant.value} need {count} registers "
                f"per thread, but a thread has at most {MAX_REGISTERS_PER_THREAD}: more warps or "
                "smaller blocks are needed."
            )
    return found
