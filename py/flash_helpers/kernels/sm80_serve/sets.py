"""The named sets of the Ampere family's serving kernels."""

from ...base.dtypes import DType
from .config import AmpereServeKernelConfig

_HEAD_DIMENSIONS = (64, 128)
# B_r, B_c, n_warps, n_stages: for prompts, and for new tokens, whose heads fill 16 rows.
_SHAPES = ((64, 64, 4, 2), (16, 64, 4, 2))


def get_ampere_serve_kernel_configs() -> list[AmpereServeKernelConfig]:
    """All, sorted."""
    return sorted(
        AmpereServeKernelConfig(dtype, d_head, *shape)
        for dtype in DType
        for d_head in _HEAD_DIMENSIONS
        for shape in _SHAPES
    )
