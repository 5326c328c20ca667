"""Reading a backward configuration of the Ampere family back from its symbol or its short form."""

import re
from functools import cache

from ..spelling import NUMBER, cell, config_of
from .config import WORD, AmpereBackwardKernelConfig

SPELLINGS = (
    f"'(FP16, 128, 128, 64, 8, 128, 64, 8): {WORD}' or its symbol "
    "'flash_bwd_sm80_fp16_d128_k128x64w8_q128x64w8'"
)
_SHAPES = [
    f"{side}_{size}" for side in ("keys", "queries") for size in ("rows", "columns", "warps")
]


def parse_symbol(text: str) -> AmpereBackwardKernelConfig | None:
    """The configuration of a `kernel_name()`; None for anything else."""
    return config_of(AmpereBackwardKernelConfig, _symbol_pattern().fullmatch(text))


def parse_short_form(text: str) -> AmpereBackwardKernelConfig | None:
    """The configuration of a short form, alone or as the first cell of a table row; else None."""
    return config_of(AmpereBackwardKernelConfig, _short_pattern().fullmatch(cell(text)))


@cache
def _symbol_pattern() -> re.Pattern[str]:
    keys, queries = (
        f"{letter}(?P<{side}_rows>{NUMBER})x(?P<{side}_columns>{NUMBER})w(?P<{side}_warps>{NUMBER})"
        for letter, side in (("k", "keys"), ("q", "queries"))
    )
    head = f"flash_bwd_sm80_(?P<dtype>fp16|bf16)_d(?P<d_head>{NUMBER})"
    return re.compile(f"{head}_{keys}_{queries}")


@cache
def _short_pattern() -> re.Pattern[str]:
    numbers = ", ".join(f"(?P<{name}>{NUMBER})" for name in ("d_head", *_SHAPES))
    return re.compile(rf"\((?P<dtype>FP16|BF16), {numbers}\): {WORD}")
