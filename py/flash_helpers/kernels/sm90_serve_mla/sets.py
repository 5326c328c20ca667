"""The named sets of the Hopper family's serving kernels for MLA."""

from ...base.dtypes import DType
from .config import HopperMlaKernelConfig

_SHAPE = (576, 64, 64, 8, 2)  # d_head, B_r, B_c, n_warps, n_stages


def get_hopper_mla_kernel_configs() -> list[HopperMlaKernelConfig]:
    """All, sorted."""
    return sorted(HopperMlaKernelConfig(dtype, *_SHAPE) for dtype in DType)
