"""The named sets of the Hopper family."""

from ...base.dtypes import DType
from .config import HopperForwardKernelConfig
from .names import parse_symbol

# Symbols behind the dtype: what wins somewhere (docs/kernels/02-sm90-forward.md), and four kernels
# that leave out one of the ideas each.
_TUNING = (
    "d64_m192_n128_g3_b3_q2_optimistic_overlap_pingpong",
    "d64_m192_n128_g3_b2_q2_optimistic_overlap_pingpong",
    "d64_m192_n64_g3_b4_q2_optimistic_overlap_pingpong",
    "d64_m192_n128_g3_b3_q2_optimistic_overlap",
    "d64_m192_n64_g3_b4_q2_optimistic_overlap",
    "d64_m128_n128_g2_b3_q2_optimistic_overlap",
    "d64_m128_n128_g2_b4_q2_optimistic_overlap_pingpong",
    "d96_m128_n128_g2_b2_q2_optimistic_overlap_pingpong",
    "d96_m192_n96_g3_b2_q2_optimistic_overlap_pingpong",
    "d128_m128_n128_g2_b2_q2_optimistic_overlap_pingpong",
    "d128_m128_n128_g2_b2_q1_optimistic_overlap_pingpong",
    "d128_m128_n64_g2_b4_q2_optimistic_overlap_pingpong",
    "d128_m192_n64_g3_b3_q1_optimistic_overlap_pingpong",
    "d128_m192_n80_g3_b2_q1_optimistic_overlap_pingpong",
    "d128_m192_n64_g3_b3_q1_optimistic_overlap",
    "d192_m128_n64_g2_b2_q1_optimistic_overlap_pingpong",
    "d192_m128_n80_g2_b2_q1_optimistic_overlap_pingpong",
    "d128_m128_n128_g2_b2_q1_optimistic_overlap",
    "d128_m128_n128_g2_b2_q1_lazy_overlap_pingpong",
    "d128_m128_n128_g2_b2_q1_overlap_pingpong",
    "d128_m128_n128_g2_b2_q1_lazy_pingpong",
    "d192_m128_n96_g2_b2_q1_optimistic_overlap_pingpong_oinq",
    "d256_m128_n64_g2_b2_q1_optimistic_overlap_pingpong_oinq",
    "d256_m128_n80_g2_b2_q1_optimistic_overlap_pingpong_oinq",
)

# One kernel for each head dimension, with every option on in some of them and off in others.
_SMOKE = (
    "d64_m192_n96_g3_b2_q2_optimistic_overlap",
    "d96_m128_n112_g2_b2_q1_overlap",
    "d128_m128_n128_g2_b2_q1_optimistic_overlap_pingpong",
    "d192_m128_n96_g2_b2_q1_lazy_pingpong_oinq",
    "d256_m128_n80_g2_b2_q1_lazy_overlap_pingpong_oinq",
)
_SMOKE_BF16 = _SMOKE[2]


def get_hopper_kernel_configs() -> list[HopperForwardKernelConfig]:
    """The tuning set, sorted: the same shapes in both dtypes."""
    return sorted(_config(dtype, shape) for dtype in DType for shape in _TUNING)


def get_hopper_smoke_kernel_configs() -> list[HopperForwardKernelConfig]:
    """A few fp16 kernels that build in seconds, and one in bf16; sorted."""
    fp16 = [_config(DType.FP16, shape) for shape in _SMOKE]
    return sorted([*fp16, _config(DType.BF16, _SMOKE_BF16)])


def _config(dtype: DType, shape: str) -> HopperForwardKernelConfig:
    symbol = f"flash_fwd_sm90_{dtype.name.lower()}_{shape}"
    config = parse_symbol(symbol)
    if config is None:
        raise ValueError(f"{symbol} does not name a kernel of the Hopper family")
    return config
