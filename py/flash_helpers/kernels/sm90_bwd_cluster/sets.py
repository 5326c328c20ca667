"""The backward passes by pairs of thread blocks of the set `hopper-bwd`."""

from ...base.dtypes import DType
from .config import ClusterBackwardKernelConfig, SumsOrder

# d_head; keys, queries and stages; blocks of dS; pairs of a wave; order of sums.
_SHAPES = (
    (192, 64, 64, 2, 2, 64, SumsOrder.ANY_ORDER),
    (192, 64, 64, 2, 2, 0, SumsOrder.IN_ORDER),
)


def get_cluster_backward_kernel_configs() -> list[ClusterBackwardKernelConfig]:
    """All, sorted: the same shapes in both dtypes."""
    return sorted(
        ClusterBackwardKernelConfig(dtype, *shape) for dtype in DType for shape in _SHAPES
    )
