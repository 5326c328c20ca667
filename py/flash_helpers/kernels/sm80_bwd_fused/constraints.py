"""Why a fused backward configuration of the Ampere family cannot be built, as sentences."""

from ..architecture import MAX_REGISTERS_PER_THREAD, WARP_SIZE
from ..backward_config import unsupported_values
from ..contract import Variant
from ..sm80_target import architecture_violations
from .config import AmpereFusedBackwardKernelConfig

ROWS = (64, 128)
COLUMNS = (64, 128)  # they divide the rows that RowStats are filled up to
WARPS = (4, 8)
MMA_M = 16  # rows of one mma


def violations(
    config: AmpereFusedBackwardKernelConfig, arch: tuple[int, int] | None = None
) -> list[str]:
    """One sentence for each reason; an empty list: it can be built (for `arch`, if given)."""
    found = _value_violations(config)
    if not found:
        found = [*_row_violations(config), *_register_violations(config)]
    needed = max(config.smem_of(variant) for variant in config.variants())
    blocks = "The blocks that stay and those that pass by"
    return [*found, *architecture_violations(blocks, needed, arch)]


def _value_violations(config: AmpereFusedBackwardKernelConfig) -> list[str]:
    allowed: dict[str, tuple[int, ...]] = {
        "d_head": config.HEAD_DIMENSIONS, "keys_rows": ROWS, "keys_columns": COLUMNS,
        "keys_warps": WARPS,
    }  # fmt: skip
    return unsupported_values(config, allowed)


def _row_violations(config: AmpereFusedBackwardKernelConfig) -> list[str]:
    pairs = config.keys_warps // 2
    return [
        f"{name} = {rows} is not divisible by {MMA_M * pairs}: each of the {pairs} pairs of warps "
        f"takes whole tiles of {MMA_M} rows."
        for name, rows in (("keys_rows", config.keys_rows), ("keys_columns", config.keys_columns))
        if rows % (MMA_M * pairs)
    ]


def _register_violations(config: AmpereFusedBackwardKernelConfig) -> list[str]:
    """Only what does not fit the registers by itself: every mma would go through local memory."""
    rows = config.keys_rows // (config.keys_warps // 2)
    # A warp has half of the elements of dK and dV, and half of the columns of P and dP.
    count = rows * (config.d_head + config.shape(Variant.KEYS)[1]) // WARP_SIZE
    if count <= MAX_REGISTERS_PER_THREAD:
        return []
    return [
        f"The gradients and scores of the kernel keys need {count} registers per thread, but a "
        f"thread has at most {MAX_REGISTERS_PER_THREAD}: more warps or smaller blocks are needed."
    ]
