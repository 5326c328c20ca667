"""The named sets of the Hopper family's backward pass."""

from ...base.dtypes import DType
from .config import HopperBackwardKernelConfig

# d_head, and rows, columns and stages of the kernels of dK and dV, and of dQ.
_SHAPES = (
    (64, 128, 64, 4, 128, 128, 4),
    (64, 128, 128, 2, 128, 128, 4),
    (64, 128, 128, 3, 192, 64, 5),
    (96, 128, 64, 3, 128, 128, 3),
    (128, 128, 64, 2, 128, 128, 3),
    (128, 128, 64, 4, 192, 64, 4),
    (192, 64, 64, 3, 128, 64, 3),
    (256, 64, 64, 2, 128, 64, 2),
)


def get_hopper_backward_kernel_configs() -> list[HopperBackwardKernelConfig]:
    """All, sorted: the same shapes in both dtypes."""
    return sorted(HopperBackwardKernelConfig(dtype, *shape) for dtype in DType for shape in _SHAPES)
