"""Reading a serving configuration, of any family, back from its symbol or its short form."""

import re
from functools import cache
from typing import TypeVar

from .contract import Variant
from .serve_config import ServeKernelConfig
from .spelling import NUMBER, cell, config_of

Config = TypeVar("Config", bound=ServeKernelConfig)


def parse(kind: type[Config], text: str) -> Config | None:
    """The configuration of a `kernel_name()`, or of a short form, alone or as the first cell of a
    table row; None for anything else."""
    symbol, short = _patterns(kind)
    return config_of(kind, symbol.fullmatch(text) or short.fullmatch(cell(text)))


def parse_symbol(kind: type[Config], text: str) -> tuple[Config, Variant] | None:
    """The configuration and the variant of the symbol of one of its kernels; else None."""
    symbol, _ = _patterns(kind)
    for variant in (Variant.APPEND, Variant.COMBINE, Variant.SERVE):
        name = text.removesuffix("" if variant is Variant.SERVE else f"_{variant.value}")
        config = config_of(kind, symbol.fullmatch(name))
        if config is None or variant not in config.variants():
            continue
        if config.symbol(variant) == text:
            return config, variant
    return None


@cache
def _patterns(kind: type[ServeKernelConfig]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    numbers = {name: f"(?P<{name}>{NUMBER})" for name in kind.LETTERS}
    symbol = "".join(f"_{kind.LETTERS[name]}{number}" for name, number in numbers.items())
    symbol += _switches(kind, "_")
    short = rf"\((?P<dtype>FP16|BF16), {', '.join(numbers.values())}\): {kind.WORD}"
    short += _switches(kind, "[+]")
    return re.compile(f"{kind.SYMBOL_START}_(?P<dtype>fp16|bf16){symbol}"), re.compile(short)


def _switches(kind: type[ServeKernelConfig], separator: str) -> str:
    return "".join(f"(?:{separator}(?P<{name}>{name}))?" for name in kind.SWITCHES)
