"""Reading a serving configuration of the Ampere family back from its symbol or its short form."""

import re

from ..contract import Variant
from ..spelling import NUMBER, cell, config_of
from .config import SYMBOL_START, WORD, AmpereServeKernelConfig

_FIELDS = {"d_head": "d", "B_r": "r", "B_c": "c", "n_warps": "w", "n_stages": "s"}
_NUMBERS = {name: f"(?P<{name}>{NUMBER})" for name in _FIELDS}
_SYMBOL = re.compile(
    f"{SYMBOL_START}_(?P<dtype>fp16|bf16)"
    + "".join(f"_{letter}{_NUMBERS[name]}" for name, letter in _FIELDS.items())
)
_SHORT = re.compile(rf"\((?P<dtype>FP16|BF16), {', '.join(_NUMBERS.values())}\): {WORD}")


def parse(text: str) -> AmpereServeKernelConfig | None:
    """The configuration of a `kernel_name()`, or of a short form, alone or as the first cell of a
    table row; None for anything else."""
    found = _SYMBOL.fullmatch(text) or _SHORT.fullmatch(cell(text))
    return config_of(AmpereServeKernelConfig, found)


def parse_symbol(text: str) -> tuple[AmpereServeKernelConfig, Variant] | None:
    """The configuration and the variant of the symbol of one of its kernels; else None."""
    for variant in (Variant.APPEND, Variant.COMBINE, Variant.SERVE):
        name = text.removesuffix("" if variant is Variant.SERVE else f"_{variant.value}")
        config = config_of(AmpereServeKernelConfig, _SYMBOL.fullmatch(name))
        if config is None or variant not in config.variants():
            continue
        if config.symbol(variant) == text:
            return config, variant
    return None
