"""The named sets of the Ampere family's serving kernels."""

from ...base.dtypes import DType
from .config import AmpereServeKernelConfig

# d_head, B_r, B_c, n_warps, n_stages.
_PROMPTS = ((64, 64, 64, 4, 2), (128, 64, 64, 4, 2))
# For new tokens, whose heads fill few rows: with as much on its way from memory as a multiprocessor
# has room for, and for those with 99 KB.
_DECODE = (
    *((64, rows, 128, 8, 4) for rows in (16, 32, 64)),
    *((128, rows, 128, 8, 3) for rows in (16, 32, 64)),
    *((d_head, rows, 64, 4, 2) for d_head in (64, 128) for rows in (16, 32)),
)


def get_ampere_serve_kernel_configs() -> list[AmpereServeKernelConfig]:
    """All, sorted."""
    shapes = _PROMPTS + _DECODE
    return sorted(AmpereServeKernelConfig(dtype, *shape) for dtype in DType for shape in shapes)
