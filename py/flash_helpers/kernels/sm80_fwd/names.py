"""Reading a configuration of the Ampere family back from any of its spellings."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import cache

from ...base.dtypes import DType
from ..spelling import NUMBER, cell
from .config import SHORT_FLAGS_AFTER_LOAD, SHORT_FLAGS_BEFORE_LOAD, FlashForwardKernelConfig

_SCALAR_TYPE = "(?:5|15)"
_FIELDS = fields(FlashForwardKernelConfig)
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
    return _from_named(_symbol_pattern().fullmatch(text))


def parse_short_form(text: str) -> FlashForwardKernelConfig | None:
    """The configuration of a short form, alone or as the first cell of a table row; else None."""
    return _from_named(_short_pattern().fullmatch(cell(text)))


def parse_demangled(text: str) -> FlashForwardKernelConfig | None:
    """The configuration of a demangled C++ name; None for anything else."""
    return _from_positional(
        _demangled_pattern(typed=False).fullmatch(text)
        or _demangled_pattern(typed=True).fullmatch(text)
    )


@cache
def _demangled_pattern(typed: bool) -> re.Pattern[str]:
    values = {"DType": _SCALAR_TYPE, "int": NUMBER, "bool": "[01]"}
    casts = {"DType": r"\(c10::ScalarType\)", "int": r"\(int\)", "bool": r"\(bool\)"}
    items = []
    for field in _FIELDS:
        kind = str(field.type)
        items.append((casts[kind] if typed else "") + f"({values[kind]})")
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


def _from_positional(match: re.Match[str] | None) -> FlashForwardKernelConfig | None:
    if match is None:
        return None
    named = zip(_FIELDS, match.groups(), strict=True)
    return _build({f.name: value != "0" if f.type == "bool" else value for f, value in named})


def _from_named(match: re.Match[str] | None) -> FlashForwardKernelConfig | None:
    if match is None:
        return None
    values = {name: match[name] for name in (f.name for f in _FIELDS)}
    is_flag = {f.name: f.type == "bool" for f in _FIELDS}
    return _build({name: v is not None if is_flag[name] else v for name, v in values.items()})


def _build(values: dict[str, str | bool]) -> FlashForwardKernelConfig | None:
    converted: dict[str, DType | int | bool] = {}
    for field in _FIELDS:
        value = values[field.name]
        if isinstance(value, bool):
            converted[field.name] = value
        else:
            converted[field.name] = (
                DType.from_string(value) if field.type == "DType" else int(value)
            )
    try:
        return FlashForwardKernelConfig(**converted)  # type: ignore[arg-type]
    except ValueError:
        return None  # a number out of range: reported like any other misspelling
