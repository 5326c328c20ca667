"""The fused backward passes of the set `hopper-bwd`."""

from ...base.dtypes import DType
from .config import AddBy, FusedBackwardKernelConfig

# d_head; keys, queries and stages; blocks of dS.
_SHAPES = (
    (64, 128, 128, 2, 2),
    (96, 128, 64, 2, 2),
    (128, 128, 64, 2, 2),
)
# Faster for many keys, and the ways of adding with which they were (family.py).
_WIDE = (
    ((96, 128, 80, 2, 2), (AddBy.COPIES, AddBy.IN_ORDER)),
    ((128, 128, 80, 2, 2), (AddBy.COPIES,)),
)


def get_fused_backward_kernel_configs() -> list[FusedBackwardKernelConfig]:
    """All, sorted: the same shapes in both dtypes."""
    shapes = (*((shape, tuple(AddBy)) for shape in _SHAPES), *_WIDE)
    return sorted(
        FusedBackwardKernelConfig(dtype, *shape, add_by)
        for dtype in DType
        for shape, ways in shapes
        for add_by in ways
    )
