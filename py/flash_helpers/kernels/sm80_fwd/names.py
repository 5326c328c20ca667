"""Reading a configuration of the Ampere family back from any of its spellings."""

import re
from dataclasses import fields
from functools import cache

from ..spelling import NUMBER, cell, config_of
from .config import SHORT_FLAGS_AFTER_LOAD, SHORT_FLAGS_BEFORE_LOAD, FlashForwardKernelConfig

_LOAD_FIELDS = ("Q_mma_load_K_tiles", "K_mma_load_K_tiles", "V_mma_load_K_tiles")
_SHAPE_FIELDS = ("d_head", "B_r", "B_c", "n_warps")

_CPP_NAME = r"[A-Za-z_][A-Za-z0-9_]*(?:::[A-Za-z_][A-Za-z0-9_]*)*"
_CPP_ARGUMENT = rf"(?:const )?{_CPP_NAME}(?: const)?(?: ?[*&])*"
# `...` is how our documents abbreviate the list; tools print the types.
_ARGUMENT_LIST = rf"\((?:\.\.\.|(?:{_CPP_ARGUMENT}(?:, {_CPP_ARGUMENT})*)?)\)"

SPELLINGS = (
    "a short form such as "
    "'(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+buffer+opt_softmax' "
    "(alone or as the first cell of a table row), a kernel symbol such as "
    "'flash_fwd_sm80_fp16_d128_r64_c64_w4_async_eager_swizzled_load_0_2_2_buffer_optsoftmax', or "
    "a demangled name such as 'void flash_forward_kernel<FlashForwardKernelConfig{5, 128, 64, 64, "
    "4, 1, 1, 1, 0, 2, 2, 1, 1}>(flash::ForwardArgs)', with or without '(c10::ScalarType)', "
    "'(int)' and '(bool)' before the values"
)


def parse_symbol(text: str) -> FlashForwardKernelConfig | None:
    """The configuration of a `kernel_name()`; None for anything else."""
    return config_of(FlashForwardKernelConfig, _symbol_pattern().fullmatch(text))


def parse_short_form(text: str) -> FlashForwardKernelConfig | None:
    """The configuration of a short form, alone or as the first cell of a table row; else None."""
    return config_of(FlashForwardKernelConfig, _short_pattern().fullmatch(cell(text)))


def parse_known(text: str) -> FlashForwardKernelConfig:
    """Of a text of ours. Raises ValueError for one that names no kernel of the family."""
    config = parse_short_form(text) or parse_symbol(text)
    if config is None:
        raise ValueError(f"{text!r} does not name a kernel of the Ampere family")
    return config


def parse_demangled(text: str) -> FlashForwardKernelConfig | None:
    """The configuration of a demangled C++ name; None for anything else."""
    patterns = (_demangled_pattern(typed) for typed in (False, True))
    match = next(filter(None, (pattern.fullmatch(text) for pattern in patterns)), None)
    return config_of(FlashForwardKernelConfig, match)


@cache
def _demangled_pattern(typed: bool) -> re.Pattern[str]:
    casts = {"DType": r"\(c10::ScalarType\)", "int": r"\(int\)", "bool": r"\(bool\)"}
    items = []
    for field in fields(FlashForwardKernelConfig):
        kind = str(field.type)
        number = f"(?P<{field.name}>{NUMBER if kind == 'int' else '5|15'})"
        value = f"(?:0|(?P<{field.name}>1))" if kind == "bool" else number
        items.append((casts[kind] if typed else "") + value)
    body = ", ".join(items)
    return re.compile(
        rf"void flash_forward_kernel<FlashForwardKernelConfig\{{{body}\}}>{_ARGUMENT_LIST}"
    )


@cache
def _short_pattern() -> re.Pattern[str]:
    shape = ", ".join(f"(?P<{name}>{NUMBER})" for name in _SHAPE_FIELDS)
    load = "_".join(f"(?P<{name}>{NUMBER})" for name in _LOAD_FIELDS)
    before = "".join(rf"(?P<{name}>{word}\+)?" for name, word in SHORT_FLAGS_BEFORE_LOAD)
    after = "".join(rf"(?P<{name}>\+{word})?" for name, word in SHORT_FLAGS_AFTER_LOAD)
    return re.compile(rf"\((?P<dtype>FP16|BF16), {shape}\): {before}load_{load}_tiles{after}")


@cache
def _symbol_pattern() -> re.Pattern[str]:
    letters = zip(_SHAPE_FIELDS, "drcw", strict=True)
    shape = "_".join(f"{letter}(?P<{name}>{NUMBER})" for name, letter in letters)
    load = "_".join(f"(?P<{name}>{NUMBER})" for name in _LOAD_FIELDS)
    before = "".join(f"(?P<{name}>{word}_)?" for name, word in SHORT_FLAGS_BEFORE_LOAD)
    after = "".join(
        f"(?P<{name}>_{word.replace('_', '')})?" for name, word in SHORT_FLAGS_AFTER_LOAD
    )
    return re.compile(f"flash_fwd_sm80_(?P<dtype>fp16|bf16)_{shape}_{before}load_{load}{after}")
