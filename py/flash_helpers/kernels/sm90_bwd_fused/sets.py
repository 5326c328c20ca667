"""The fused backward passes of the set `hopper-bwd`."""

from ...base.dtypes import DType
from .config import AddBy, FusedBackwardKernelConfig

# d_head; keys, queries and stages; blocks of dS.
_SHAPES = (
    (64, 128, 128, 2, 2),
    (96, 128, 64, 2, 2),
    (128, 128, 64, 2, 2),
)
# Where blocks of more queries are faster: head dimension and way of adding; with which masks
# (causal), and beyond how many keys. Measured: docs/results/hopper-backward-h200.md.
WIDE_COLUMNS = 80
WIDE = {
    (96, AddBy.COPIES): {False: 512, True: 2048},
    (96, AddBy.IN_ORDER): {False: 512, True: 4096},
    (128, AddBy.COPIES): {False: 0, True: 4096},
}


def get_fused_backward_kernel_configs() -> list[FusedBackwardKernelConfig]:
    """All, sorted: the same shapes in both dtypes."""
    kinds = [(shape, add_by) for shape in _SHAPES for add_by in AddBy]
    kinds += [((d_head, 128, WIDE_COLUMNS, 2, 2), add_by) for d_head, add_by in WIDE]
    return sorted(
        FusedBackwardKernelConfig(dtype, *shape, add_by)
        for dtype in DType
        for shape, add_by in kinds
    )
