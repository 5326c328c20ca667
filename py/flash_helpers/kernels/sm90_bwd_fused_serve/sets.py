"""The named sets of the Hopper family's fused backward pass that serves."""

from ...base.dtypes import DType
from ..sm90_bwd_fused.config import AddBy
from .config import FusedServeBackwardKernelConfig

# d_head; keys, queries and stages; blocks of dS: what calls without sequences get.
_SHAPES = ((64, 128, 128, 2, 2), (96, 128, 64, 2, 2), (128, 128, 64, 2, 2))


def get_fused_serve_backward_kernel_configs() -> list[FusedServeBackwardKernelConfig]:
    """All, sorted: the same shapes in both dtypes."""
    return sorted(
        FusedServeBackwardKernelConfig(dtype, *shape, AddBy.COPIES)
        for dtype in DType
        for shape in _SHAPES
    )
