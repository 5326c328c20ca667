"""Everything about kernel configurations, under the module name that the seeds use."""

from .base.dtypes import DType
from .kernels.contract import KernelConfig, Variant, config_order
from .kernels.flops import (
    calc_matmul_flop,
    calc_self_attn_flop,
    calc_total_flop,
    kv_tile_flop,
    tile_softmax_flop,
)
from .kernels.names import nearest_names, parse_kernel_name_into_config, parse_symbol
from .kernels.registry import families, violations
from .kernels.sets import get_kernel_configs, get_kernels_to_build, known_configs, valid_words
from .kernels.sm80_fwd.config import FlashForwardKernelConfig
from .kernels.sm80_fwd.coverage import get_covering_kernel_configs
from .kernels.sm80_fwd.sets import (
    get_autotuning_kernel_configs,
    get_d64_kernel_configs,
    get_kernel_progression_configs,
    should_autotune_config,
)
from .kernels.sm80_fwd.steps import PreviousKernelConfig, get_previous_kernel_configs
from .kernels.sm90_fwd.config import HopperForwardKernelConfig
from .kernels.sm90_fwd.sets import get_hopper_kernel_configs, get_hopper_smoke_kernel_configs
from .kernels.variants import has_kernel_for, launched_symbol, takes_everything


def get_sm80_kernel_configs(key: str) -> list[FlashForwardKernelConfig]:
    """The live kernels of the Ampere family among what a selection word names."""
    return [c for c in get_kernel_configs(key) if isinstance(c, FlashForwardKernelConfig)]


def parse_sm80_name(text: str) -> FlashForwardKernelConfig:
    """As parse_kernel_name_into_config, for a live kernel of the Ampere family."""
    config = parse_kernel_name_into_config(text)
    if not isinstance(config, FlashForwardKernelConfig):
        raise ValueError(f"{text!r} names a kernel of another family: {type(config).__name__}")
    return config


def has_general_kernel(config: KernelConfig) -> bool:
    """Whether a build has a second kernel of this configuration, for any lengths and the causal
    mask, beside the one for whole blocks."""
    return set(config.built_variants()) == {Variant.WHOLE, Variant.ANY}


FAMILIES = tuple(family.NAME for family in families())

__all__ = [
    "FAMILIES",
    "DType",
    "FlashForwardKernelConfig",
    "HopperForwardKernelConfig",
    "KernelConfig",
    "PreviousKernelConfig",
    "Variant",
    "calc_matmul_flop",
    "calc_self_attn_flop",
    "calc_total_flop",
    "config_order",
    "get_autotuning_kernel_configs",
    "get_covering_kernel_configs",
    "get_d64_kernel_configs",
    "get_hopper_kernel_configs",
    "get_hopper_smoke_kernel_configs",
    "get_kernel_configs",
    "get_kernel_progression_configs",
    "get_kernels_to_build",
    "get_previous_kernel_configs",
    "get_sm80_kernel_configs",
    "has_general_kernel",
    "has_kernel_for",
    "known_configs",
    "kv_tile_flop",
    "launched_symbol",
    "nearest_names",
    "parse_kernel_name_into_config",
    "parse_sm80_name",
    "parse_symbol",
    "should_autotune_config",
    "takes_everything",
    "tile_softmax_flop",
    "valid_words",
    "violations",
]
