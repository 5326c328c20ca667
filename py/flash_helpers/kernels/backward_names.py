"""Reading the configuration of a backward pass, of any family, back from its symbol or its short
form."""

import re
from dataclasses import fields
from functools import cache
from typing import TypeVar

from .backward_config import BackwardKernelConfig
from .contract import CppEnum, Variant
from .spelling import NUMBER, cell, config_of

Config = TypeVar("Config", bound=BackwardKernelConfig)


def parse(kind: type[Config], text: str) -> Config | None:
    """The configuration of a `kernel_name()`, or of a short form, alone or as the first cell of a
    table row; None for anything else."""
    symbol, short = _patterns(kind)
    return config_of(kind, symbol.fullmatch(text) or short.fullmatch(cell(text)))


def parse_symbol(kind: type[Config], text: str) -> tuple[Config, Variant] | None:
    """The configuration and the variant of the symbol of one of its kernels; else None."""
    pattern, _ = _patterns(kind)
    for variant in (Variant.DOTS, Variant.QUERIES, Variant.ROUND, Variant.KEYS):
        suffix = "" if variant is Variant.KEYS else f"_{variant.value}"
        if text.endswith(suffix):
            config = config_of(kind, pattern.fullmatch(text.removesuffix(suffix)))
            if config is not None and variant in config.variants():
                return config, variant
    return None


@cache
def _patterns(kind: type[BackwardKernelConfig]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    names = kind.shape_fields()
    sides = [variant.value for variant in kind.SHAPES]
    separators = ("", "x", names[2][0])
    shapes = "_".join(
        side[0]
        + "".join(
            f"{before}{_number(f'{side}_{name}')}"
            for before, name in zip(separators, names, strict=True)
        )
        for side in sides
    )
    behind = "".join(
        f"_{before}{_value(kind, name, lower=True)}" for name, before in kind.EXTRAS.items()
    )
    start = f"{kind.symbol_start()}_(?P<dtype>fp16|bf16)_d{_number('d_head')}"
    numbers = [_number(f"{side}_{name}") for side in sides for name in names]
    values = ", ".join((_number("d_head"), *numbers, *(_value(kind, n) for n in kind.EXTRAS)))
    short = rf"\((?P<dtype>FP16|BF16), {values}\): {kind.WORD}"
    return re.compile(f"{start}_{shapes}{behind}"), re.compile(short)


def _value(kind: type[BackwardKernelConfig], name: str, *, lower: bool = False) -> str:
    """A number, or a member of an enumeration."""
    enum = {f.name: kind.kind(str(f.type)) for f in fields(kind)}[name]
    if not issubclass(enum, CppEnum):
        return _number(name)
    words = "|".join(member.name for member in enum)
    return f"(?P<{name}>{words.lower() if lower else words})"


def _number(name: str) -> str:
    return f"(?P<{name}>{NUMBER})"
