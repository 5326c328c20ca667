"""The named sets of the Ampere family's backward pass."""

from ...base.dtypes import DType
from .config import AmpereBackwardKernelConfig

# d_head, and rows, columns and warps of the kernels of dK and dV, and of dQ.
_SHAPES = (
    (64, 128, 64, 8, 128, 64, 8),
    (96, 128, 64, 8, 128, 64, 8),
    (128, 64, 64, 4, 64, 64, 4),
)


def get_ampere_backward_kernel_configs() -> list[AmpereBackwardKernelConfig]:
    """All, sorted: the same shapes in both dtypes."""
    return sorted(AmpereBackwardKernelConfig(dtype, *shape) for dtype in DType for shape in _SHAPES)
