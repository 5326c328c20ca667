"""What tests ask of the kernels of the Ampere family."""

from __future__ import annotations

from flash_helpers.kernel_configs import (
    FlashForwardKernelConfig,
    KernelConfig,
    Variant,
    get_kernel_configs,
    parse_kernel_name_into_config,
)


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
