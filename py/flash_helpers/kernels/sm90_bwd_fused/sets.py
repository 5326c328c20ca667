"""The fused backward passes of the set `hopper-bwd`."""

from ...base.dtypes import DType
from .config import AddBy, FusedBackwardKernelConfig

# d_head; keys, queries and stages; blocks of dS.
_SHAPES = (
    (64, 128, 128, 2, 2),
    (96, 128, 64, 2, 2),
    (128, 128, 64, 2, 2),
)


def get_fused_backward_kernel_configs() -> list[FusedBackwardKernelConfig]:
    """All, sorted: the same shapes in both dtypes, and with dQ added up in all ways."""
    return sorted(
        FusedBackwardKernelConfig(dtype, *shape, add_by)
        for dtype in DType
        for shape in _SHAPES
        for add_by in AddBy
    )
