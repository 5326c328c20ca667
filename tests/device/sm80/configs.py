"""Configurations of the Ampere family for the tests of its headers."""

from __future__ import annotations

from flash_helpers.kernel_configs import DType, FlashForwardKernelConfig

FP16, BF16 = DType.FP16, DType.BF16


def config(
    dtype: DType = FP16,
    d_head: int = 64,
    B_r: int = 64,
    B_c: int = 64,
    n_warps: int = 4,
    swizzled: bool = True,
    async_copy: bool = True,
    load: tuple[int, int, int] = (0, 0, 0),
    buffer: bool = False,
) -> FlashForwardKernelConfig:
    """A configuration; what a test leaves out does not matter to it."""
    return FlashForwardKernelConfig(
        dtype, d_head, B_r, B_c, n_warps, async_copy, True, swizzled, *load, buffer, True
    )
