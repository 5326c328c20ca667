"""The named sets of the Ampere family's backward pass."""

from ...base.dtypes import DType
from .config import AmpereBackwardKernelConfig

# d_head, and rows, columns and warps of the kernels of dK and dV, and of dQ. Above 128 by the
# shared memory that GPUs have: the largest that fits is taken.
_SHAPES = (
    (64, 128, 64, 8, 128, 64, 8),
    (96, 128, 64, 8, 128, 64, 8),
    (128, 64, 64, 4, 64, 64, 4),
    (192, 64, 32, 4, 64, 32, 4),  # 99 KB
    (192, 128, 32, 8, 128, 32, 8),  # 163 KB
    (256, 64, 16, 4, 64, 16, 4),  # 99 KB
    (256, 128, 16, 8, 128, 16, 8),  # 163 KB
    (256, 128, 32, 8, 128, 32, 8),  # 227 KB
)


def get_ampere_backward_kernel_configs() -> list[AmpereBackwardKernelConfig]:
    """All, sorted: the same shapes in both dtypes."""
    return sorted(AmpereBackwardKernelConfig(dtype, *shape) for dtype in DType for shape in _SHAPES)
