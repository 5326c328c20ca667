"""Everything about kernel configurations, under the module name that the seeds use."""

from .config import FlashForwardKernelConfig
from .config_coverage import get_covering_kernel_configs
from .config_names import nearest_names, parse_kernel_name_into_config
from .config_sets import (
    get_autotuning_kernel_configs,
    get_d64_kernel_configs,
    get_kernel_configs,
    get_kernel_progression_configs,
    get_kernels_to_build,
    known_configs,
    should_autotune_config,
    valid_words,
)
from .constraints import RegisterEstimate, register_advice, register_estimate, violations
from .dtypes import DType
from .flops import (
    calc_matmul_flop,
    calc_self_attn_flop,
    calc_total_flop,
    kv_tile_flop,
    tile_softmax_flop,
)
from .previous import PreviousKernelConfig, get_previous_kernel_configs

__all__ = [
    "DType",
    "FlashForwardKernelConfig",
    "PreviousKernelConfig",
    "RegisterEstimate",
    "calc_matmul_flop",
    "calc_self_attn_flop",
    "calc_total_flop",
    "get_autotuning_kernel_configs",
    "get_covering_kernel_configs",
    "get_d64_kernel_configs",
    "get_kernel_configs",
    "get_kernel_progression_configs",
    "get_kernels_to_build",
    "get_previous_kernel_configs",
    "known_configs",
    "kv_tile_flop",
    "nearest_names",
    "parse_kernel_name_into_config",
    "register_advice",
    "register_estimate",
    "should_autotune_config",
    "tile_softmax_flop",
    "valid_words",
    "violations",
]
