"""The named sets of the Ampere family's backward pass that serves."""

from ...base.dtypes import DType
from .config import AmpereServeBackwardKernelConfig

# d_head, and rows, columns and warps of the kernels of dK and dV, and of dQ: at 128 with fewer
# columns than the other backward pass, so that there are registers for windows and caps; above it
# with what 99 KB hold.
_SHAPES = (
    (64, 128, 64, 8, 128, 64, 8),
    (96, 128, 64, 8, 128, 64, 8),
    (128, 64, 32, 4, 64, 64, 4),
    (192, 64, 32, 4, 64, 32, 4),
    (256, 64, 16, 4, 64, 16, 4),
)


def get_ampere_serve_backward_kernel_configs() -> list[AmpereServeBackwardKernelConfig]:
    """All, sorted: the same shapes in both dtypes."""
    return sorted(
        AmpereServeBackwardKernelConfig(dtype, *shape) for dtype in DType for shape in _SHAPES
    )
