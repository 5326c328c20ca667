"""The named sets of the Ampere family's serving kernels."""

from ...base.dtypes import DType
from .config import AmpereServeKernelConfig

# d_head, B_r, B_c, n_warps, n_stages.
_PROMPTS = ((64, 64, 64, 4, 2), (128, 64, 64, 4, 2))
# For new tokens, whose heads fill few rows: with as much on its way from memory as a multiprocessor
# has room for, and for those with 99 KB. Rows of 64 elements are so short that what a block costs a
# warp takes as long as its bytes: with 227 KB there are blocks of twice the keys.
_DECODE = (
    *((64, rows, 256, 8, 3) for rows in (16, 32)),
    *((64, rows, 128, 8, 4) for rows in (16, 32, 64)),
    *((128, rows, 128, 8, 3) for rows in (16, 32, 64)),
    *((128, rows, 64, 4, 3) for rows in (16, 32)),  # two on a multiprocessor, for many tiles
    *((d_head, rows, 64, 4, 2) for d_head in (64, 128) for rows in (16, 32)),
)
# Heads of more than 128, of any number of chunks of 64 columns. For prompts, tiles for 99 and for
# 163 KB; for new tokens for 227 KB, for 163 KB, and for 99 KB or, two thread blocks of it, 163 KB.
_WIDE = (
    (256, 64, 32, 4, 2),
    (256, 128, 32, 8, 2),
    (256, 16, 64, 4, 3),
    (256, 32, 64, 4, 2),
    (256, 16, 32, 2, 2),
)


def get_ampere_serve_kernel_configs() -> list[AmpereServeKernelConfig]:
    """All, sorted."""
    shapes = _PROMPTS + _DECODE + _WIDE
    return sorted(AmpereServeKernelConfig(dtype, *shape) for dtype in DType for shape in shapes)
