"""Configurations of the Hopper family for the tests of its headers."""

from __future__ import annotations

from flash_helpers.kernel_configs import DType, HopperForwardKernelConfig
from flash_helpers.kernels.sm90_fwd.config import MaxPolicy

FP16, BF16 = DType.FP16, DType.BF16


def config(
    dtype: DType = FP16,
    d_head: int = 128,
    block_n: int = 128,
    n_mma_groups: int = 2,
    n_buffers: int = 2,
    n_q_buffers: int = 1,
    max_policy: MaxPolicy = MaxPolicy.LAZY,
    o_in_q: bool = False,
) -> HopperForwardKernelConfig:
    """A configuration; what a test leaves out does not matter to it."""
    return HopperForwardKernelConfig(
        dtype, d_head, block_n, n_mma_groups, n_buffers, n_q_buffers, max_policy, True, False,
        o_in_q,
    )  # fmt: skip
