"""The named sets of the Ampere family."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...base.dtypes import DType
from .config import FlashForwardKernelConfig
from .names import parse_known

# The first seven steps of the progression; each adds one idea to the one before, and the last
# keeps Q in registers, which makes the double buffer of operands unnecessary.
PROGRESSION_STEPS = (
    "(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles",
    "(FP16, 128, 64, 64, 4): async+swizzled+load_0_0_0_tiles",
    "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_0_0_tiles",
    "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles",
    "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer",
    "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax",
    "(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+opt_softmax",
)


def should_autotune_config(cfg: FlashForwardKernelConfig) -> bool:
    """Whether a point of the autotuning space is worth a measurement."""
    if cfg.eager_load_blocks and not cfg.async_copy:
        return False  # a load through registers cannot be in flight during the matmul
    if cfg.Q_mma_load_K_tiles not in (0, cfg.K_mma_load_K_tiles):
        return False  # Q and K walk the same loop
    if cfg.B_r == 64:
        if cfg.n_warps == 8:
            return False
        if cfg.B_c == 32 and cfg.Q_mma_load_K_tiles == 0:
            return False  # too many registers for a third thread block per multiprocessor
        if cfg.B_c == 64 and cfg.Q_mma_load_K_tiles != 0:
            return False
    # With 128 query rows, Q as a whole does not fit the registers beside O and S.
    return not (cfg.B_r == 128 and cfg.Q_mma_load_K_tiles == 0)


def get_autotuning_kernel_configs(
    dtypes: Iterable[DType] = (DType.BF16, DType.FP16),
) -> list[FlashForwardKernelConfig]:
    """The autotuning set, sorted: 40 configurations per dtype."""
    shapes = itertools.product((64, 128), (32, 64), (4,))
    tiles = itertools.product((0, 2), repeat=3)
    switches = itertools.product((False, True), repeat=2)
    configs = (
        FlashForwardKernelConfig(
            dtype, 128, *shape, True, True, True, q_tiles, k_tiles, v_tiles, buffer, opt_softmax
        )
        for dtype, shape, (q_tiles, k_tiles, v_tiles), (buffer, opt_softmax) in itertools.product(
            set(dtypes), shapes, tiles, switches
        )
    )
    return sorted(cfg for cfg in configs if should_autotune_config(cfg))


def get_kernel_progression_configs(all: bool = False) -> list[FlashForwardKernelConfig]:
    """The seven steps in order; `all` crosses them with the block sizes and warp counts."""
    steps = [parse_known(step) for step in PROGRESSION_STEPS]
    if not all:
        return steps
    shapes = itertools.product((128, 64), (128, 64, 32), (4, 8))
    return [
        replace(step, B_r=B_r, B_c=B_c, n_warps=n_warps)
        for B_r, B_c, n_warps in shapes
        if B_r >= B_c and not (n_warps == 8 and B_r == 64)
        for step in steps
    ]


def get_d64_kernel_configs() -> list[FlashForwardKernelConfig]:
    """The progression for heads of 64, in both dtypes, with 64 and 128 query rows a block;
    sorted."""
    return sorted(
        replace(step, dtype=dtype, d_head=64, B_r=B_r)
        for step in get_kernel_progression_configs()
        for dtype in DType
        for B_r in (64, 128)
    )


def get_configs_with_blocks(B_r: int, B_c: int) -> Sequence[FlashForwardKernelConfig]:
    """The part of the autotuning set with these blocks."""
    return [c for c in get_autotuning_kernel_configs() if c.blocks() == (B_r, B_c)]
