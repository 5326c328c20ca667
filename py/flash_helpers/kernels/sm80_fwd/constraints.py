"""Why a configuration of the Ampere family cannot be built, as sentences.

Only an accumulator that does not fit the registers *by itself* is a violation: every mma of its
loop would then go through local memory, and no entry of the list of allowed spills could justify
that. (What else the registers may cost, the build reports.)
"""

from ..architecture import (
    MAX_REGISTERS_PER_THREAD,
    WARP_SIZE,
)
from ..sm80_target import architecture_violations
from .config import FlashForwardKernelConfig

MMA_M = 16  # rows of one mma
MMA_K = 16  # depth of one k-tile of mma.sync.m16n8k16

ALLOWED_VALUES = {"d_head": (64, 128), "B_r": (64, 128), "B_c": (32, 64, 128), "n_warps": (4, 8)}


def violations(config: FlashForwardKernelConfig, arch: tuple[int, int] | None = None) -> list[str]:
    """One sentence for each reason; an empty list: it can be built (for `arch`, if given)."""
    found = [*_value_violations(config), *_divisibility_violations(config)]
    found += _register_violations(config)
    if arch is not None:
        found += architecture_violations("The Q, K and V blocks", config.smem_bytes(), arch)
    return found


def _value_violations(config: FlashForwardKernelConfig) -> list[str]:
    found = []
    for name, allowed in ALLOWED_VALUES.items():
        value = getattr(config, name)
        if value not in allowed:
            choices = " or ".join(map(str, allowed))
            found.append(f"{name} = {value} is not supported: it must be {choices}.")
    if config.n_warps == 8 and config.B_r != 128:
        found.append(f"n_warps = 8 needs B_r = 128, but B_r is {config.B_r}.")
    return found


def _divisibility_violations(config: FlashForwardKernelConfig) -> list[str]:
    found = []
    rows = MMA_M * config.n_warps
    if config.B_r % rows:
        found.append(
            f"B_r = {config.B_r} is not divisible by {rows}: each of the {config.n_warps} warps "
            f"takes whole tiles of {MMA_M} rows."
        )
    for name in ("d_head", "B_c"):
        if getattr(config, name) % MMA_K:
            found.append(
                f"{name} = {getattr(config, name)} is not divisible by {MMA_K}, "
                "the depth of one k-tile."
            )
    for operand, depth_name in (("Q", "d_head"), ("K", "d_head"), ("V", "B_c")):
        tiles = getattr(config, f"{operand}_mma_load_K_tiles")
        k_tiles = getattr(config, depth_name) // MMA_K
        if tiles and k_tiles % tiles:
            found.append(
                f"{operand}_mma_load_K_tiles = {tiles} does not divide the {k_tiles} k-tiles of "
                f"{depth_name} = {getattr(config, depth_name)}."
            )
    return found


def _register_violations(config: FlashForwardKernelConfig) -> list[str]:
    rows = config.B_r / config.n_warps
    return [
        f"The accumulator of {what} alone needs {count} registers per thread, but a thread has "
        f"at most {MAX_REGISTERS_PER_THREAD}: more warps or smaller blocks are needed."
        for what, columns in (("O", config.d_head), ("S", config.B_c))
        if (count := round(rows * columns / WARP_SIZE)) > MAX_REGISTERS_PER_THREAD
    ]
