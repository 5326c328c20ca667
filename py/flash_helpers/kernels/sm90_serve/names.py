"""Reading a serving configuration of the Hopper family back from its symbol or its short form."""

import re

from ..contract import Variant
from ..spelling import NUMBER, cell, config_of
from .config import SYMBOL_START, WORD, HopperServeKernelConfig

_FIELDS = {
    "d_head": "d", "block_n": "n", "n_mma_groups": "g", "n_buffers": "b", "n_q_buffers": "q",
}  # fmt: skip
_NUMBERS = {name: f"(?P<{name}>{NUMBER})" for name in _FIELDS}
_SYMBOL = re.compile(
    f"{SYMBOL_START}_(?P<dtype>fp16|bf16)"
    + "".join(f"_{letter}{_NUMBERS[name]}" for name, letter in _FIELDS.items())
)
_SHORT = re.compile(rf"\((?P<dtype>FP16|BF16), {', '.join(_NUMBERS.values())}\): {WORD}")


def parse(text: str) -> HopperServeKernelConfig | None:
    """The configuration of a `kernel_name()`, or of a short form, alone or as the first cell of a
    table row; None for anything else."""
    found = _SYMBOL.fullmatch(text) or _SHORT.fullmatch(cell(text))
    return config_of(HopperServeKernelConfig, found)


def parse_symbol(text: str) -> tuple[HopperServeKernelConfig, Variant] | None:
    """The configuration of its kernel's symbol, and the variant; else None."""
    config = config_of(HopperServeKernelConfig, _SYMBOL.fullmatch(text))
    return (config, Variant.SERVE) if config is not None else None
