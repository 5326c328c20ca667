"""The fused backward passes of the set `ampere-bwd`."""

from ...base.dtypes import DType
from .config import AmpereFusedBackwardKernelConfig

# d_head; keys, queries and warps.
_SHAPES = (
    (64, 128, 128, 8),
    (128, 128, 64, 8),
)


def get_ampere_fused_backward_kernel_configs() -> list[AmpereFusedBackwardKernelConfig]:
    """All, sorted: the same shapes in both dtypes."""
    return sorted(
        AmpereFusedBackwardKernelConfig(dtype, *shape) for dtype in DType for shape in _SHAPES
    )
