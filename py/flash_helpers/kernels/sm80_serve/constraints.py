"""Why a serving configuration of the Ampere family cannot be built, as sentences."""

from ..architecture import SYSTEM_SHARED_MEMORY, UNKNOWN_ARCH_SHARED_MEMORY, WARP_SIZE
from ..sm80_target import architecture_violations
from .config import WARP_ROWS, AmpereServeKernelConfig

ALLOWED_VALUES: dict[str, tuple[int, ...]] = {
    "d_head": (64, 128, 256),
    "B_r": (16, 32, 64, 128),
    "B_c": (32, 64, 128, 256),
    "n_warps": (2, 4, 8),
    "n_stages": (2, 3, 4),
}


def violations(config: AmpereServeKernelConfig, arch: tuple[int, int] | None = None) -> list[str]:
    """One sentence for each reason; an empty list: it can be built (for `arch`, if given)."""
    found = values_violations(config, ALLOWED_VALUES) or _warp_violations(config)
    return [*found, *(() if found else arch_violations(config, arch))]


def values_violations(
    config: AmpereServeKernelConfig, allowed: dict[str, tuple[int, ...]]
) -> list[str]:
    """Of numbers that no kernel has."""
    return [
        f"{name} = {getattr(config, name)} is not supported: it must be "
        f"{' or '.join(map(str, values))}."
        for name, values in allowed.items()
        if getattr(config, name) not in values
    ]


def _warp_violations(config: AmpereServeKernelConfig) -> list[str]:
    if config.n_warps % config.row_warps():
        return [
            f"n_warps = {config.n_warps} is not a multiple of {config.row_warps()}: each has "
            f"{WARP_ROWS} of the B_r = {config.B_r} rows."
        ]
    least = config.n_warps * WARP_ROWS
    if config.shares_keys() and config.B_c not in (least, 2 * least):
        return [
            f"B_c = {config.B_c} must be {least} or {2 * least}: {config.key_warps()} warps "
            "share the keys of a block, and their sums take the place of a stage."
        ]
    if config.B_c // config.n_warps > WARP_SIZE:
        return [
            f"B_c = {config.B_c} is too large: each of the {config.n_warps} warps looks up "
            f"{WARP_SIZE} rows at a time."
        ]
    if config.B_c // config.n_warps < WARP_SIZE * 16 // (config.d_head * config.dtype.bytes):
        return [f"B_c = {config.B_c} is too small: a copy by one warp has more rows."]
    return []


def arch_violations(config: AmpereServeKernelConfig, arch: tuple[int, int] | None) -> list[str]:
    """Of an architecture's instructions and shared memory."""
    what = "The tile and the blocks of keys"
    # Where one thread block fits that is meant to be one of two, half of a launch would wait.
    is_pair = config.min_blocks_per_sm() > 1 and config.smem_bytes() > UNKNOWN_ARCH_SHARED_MEMORY
    if not is_pair:
        return architecture_violations(what, config.smem_bytes(), arch)
    needed = 2 * config.smem_bytes() + SYSTEM_SHARED_MEMORY
    return architecture_violations(f"{what} of two thread blocks", needed, arch)
