"""The named sets of the Hopper family's serving kernels."""

from ...base.dtypes import DType
from .config import HopperServeKernelConfig

# d_head, block_n, n_mma_groups, n_buffers, n_q_buffers: of packed keys and of pages, each with rows
# of one head in a tile and of all heads that share a KV head.
_SHAPES = (
    (64, 128, 2, 4, 2), (96, 128, 2, 2, 2), (128, 128, 2, 2, 2), (192, 96, 2, 2, 1),
    (256, 64, 2, 2, 1),
)  # fmt: skip
_NARROW = ((192, 128, 2, 2, 1),)  # DeepSeek's prompts: values of 128
# Larger tiles, with rows of one head.
_LARGE = ((64, 96, 3, 4, 2), (96, 80, 3, 3, 1), (128, 64, 3, 3, 1))
# For narrow windows: of packed keys and of pages, whose producers have no registers for a second Q.
_NARROW_WINDOW = ((64, 64, 4, 4, 2), (64, 64, 4, 4, 1))


def get_hopper_serve_kernel_configs() -> list[HopperServeKernelConfig]:
    """All, sorted."""
    return sorted(
        HopperServeKernelConfig(dtype, *shape, paged=paged, **kind)
        for dtype in DType for paged in (False, True) for shapes, kind in (
            (_SHAPES + _LARGE, {}), (_SHAPES, {"pack_gqa": True}),
            (_NARROW, {"narrow_v": True}), (_NARROW, {"pack_gqa": True, "narrow_v": True}),
            (_NARROW_WINDOW[paged : paged + 1], {"narrow_window": True}),
        )
        for shape in shapes
    )  # fmt: skip
