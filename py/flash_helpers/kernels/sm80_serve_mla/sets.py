"""The named sets of the Ampere family's serving kernels for MLA."""

from ...base.dtypes import DType
from .config import AmpereMlaKernelConfig

# d_head, B_r, B_c, n_warps, n_stages: for 227 KB of shared memory, for 163, and for 99.
_SHAPES = (
    (576, 16, 64, 8, 3),
    (576, 32, 64, 8, 2),
    (576, 64, 64, 8, 2),
    (576, 16, 64, 8, 2),
    (576, 64, 32, 8, 2),
    (576, 16, 32, 4, 2),
)


def get_ampere_mla_kernel_configs() -> list[AmpereMlaKernelConfig]:
    """All, sorted."""
    return sorted(AmpereMlaKernelConfig(dtype, *shape) for dtype in DType for shape in _SHAPES)
