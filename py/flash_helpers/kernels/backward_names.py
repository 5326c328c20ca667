"""Reading the configuration of a backward pass, of any family, back from its symbol or its short
form."""

import re
from functools import cache
from typing import TypeVar

from .backward_config import BackwardKernelConfig
from .contract import Variant
from .spelling import NUMBER, cell, config_of

Config = TypeVar("Config", bound=BackwardKernelConfig)

_SIDES = (Variant.KEYS.value, Variant.QUERIES.value)


def parse(kind: type[Config], text: str) -> Config | None:
    """The configuration of a `kernel_name()`, or of a short form, alone or as the first cell of a
    table row; None for anything else."""
    symbol, short = _patterns(kind)
    return config_of(kind, symbol.fullmatch(text) or short.fullmatch(cell(text)))


def parse_symbol(kind: type[Config], text: str) -> tuple[Config, Variant] | None:
    """The configuration and the variant of the symbol of one of its kernels; else None."""
    pattern, _ = _patterns(kind)
    for variant in (Variant.DOTS, Variant.QUERIES, Variant.KEYS):
        suffix = "" if variant is Variant.KEYS else f"_{variant.value}"
        if text.endswith(suffix):
            config = config_of(kind, pattern.fullmatch(text.removesuffix(suffix)))
            if config is not None:
                return config, variant
    return None


@cache
def _patterns(kind: type[BackwardKernelConfig]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    names = kind.shape_fields()
    separators = ("", "x", names[2][0])
    shapes = "_".join(
        side[0]
        + "".join(
            f"{before}{_number(side, name)}" for before, name in zip(separators, names, strict=True)
        )
        for side in _SIDES
    )
    start = f"{kind.symbol_start()}_(?P<dtype>fp16|bf16)_d(?P<d_head>{NUMBER})"
    numbers = ", ".join(_number(side, name) for side in _SIDES for name in names)
    short = rf"\((?P<dtype>FP16|BF16), (?P<d_head>{NUMBER}), {numbers}\): {kind.WORD}"
    return re.compile(f"{start}_{shapes}"), re.compile(short)


def _number(side: str, name: str) -> str:
    return f"(?P<{side}_{name}>{NUMBER})"
