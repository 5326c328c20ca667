"""How the configuration of a backward pass, of any family, is spelled."""

from __future__ import annotations

from collections.abc import Mapping

from flash_helpers.kernel_configs import Variant, parse_kernel_name_into_config, parse_symbol
from flash_helpers.kernels.backward_config import BackwardKernelConfig


def check_spellings(
    config: BackwardKernelConfig, short: str, symbol: str, suffixes: Mapping[Variant, str]
) -> None:
    """Its short form and its symbol, and those of its kernels, are these, and are read back."""
    assert (config.short_form(), config.kernel_name()) == (short, symbol)
    for text in (short, symbol, f"| {short} | 1.0 |"):
        assert parse_kernel_name_into_config(text) == config
    for variant, suffix in suffixes.items():
        assert config.symbol(variant) == symbol + suffix
        assert parse_symbol(symbol + suffix) == (config, variant)
