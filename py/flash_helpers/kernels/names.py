"""Reading a configuration back from any of its spellings: strict and anchored.

A spelling is accepted only as a whole; blanks, signs, leading zeros, other digits than ASCII's,
doubled or reordered flags and anything before or after are errors.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import fields
from functools import cache

from ..base.dtypes import DType
from .contract import KernelConfig
from .sm80_fwd.config import (
    GENERAL_SUFFIX,
    SHORT_FLAGS_AFTER_LOAD,
    SHORT_FLAGS_BEFORE_LOAD,
    FlashForwardKernelConfig,
)
from .sm90_fwd.names import parse_hopper_short_form, parse_hopper_symbol
from .steps.previous import at_step, split_name

MAX_TEXT = 4096  # longer than any table row; keeps the error message and the search short

# No leading zeros: every number has one spelling, so a name has one configuration and back.
_NUMBER = "(?:0|[1-9][0-9]{0,4})"
_SCALAR_TYPE = "(?:5|15)"
_FIELDS = fields(FlashForwardKernelConfig)
_LOAD_FIELDS = ("Q_mma_load_K_tiles", "K_mma_load_K_tiles", "V_mma_load_K_tiles")
_SHAPE_FIELDS = ("d_head", "B_r", "B_c", "n_warps")

_CPP_NAME = r"[A-Za-z_][A-Za-z0-9_]*(?:::[A-Za-z_][A-Za-z0-9_]*)*"
_CPP_ARGUMENT = rf"(?:const )?{_CPP_NAME}(?: const)?(?: ?[*&])*"
# `...` is how our documents abbreviate the list; tools print the types.
_ARGUMENT_LIST = rf"\((?:\.\.\.|(?:{_CPP_ARGUMENT}(?:, {_CPP_ARGUMENT})*)?)\)"

EXPECTED = (
    "expected a short form such as "
    "'(FP16, 128, 64, 64, 4): async+eager+swizzled+load_0_2_2_tiles+buffer+opt_softmax' "
    "(alone or as the first cell of a table row), a kernel symbol such as "
    "'flash_fwd_sm80_fp16_d128_r64_c64_w4_async_eager_swizzled_load_0_2_2_buffer_optsoftmax', or "
    "a demangled name such as 'void flash_forward_kernel<FlashForwardKernelConfig{5, 128, 64, 64, "
    "4, 1, 1, 1, 0, 2, 2, 1, 1}>(flash::ForwardArgs)', with or without '(c10::ScalarType)', "
    "'(int)' and '(bool)' before the values; or, of the Hopper family, "
    "'(FP16, 128, 128, 128, 2, 2, 1): hopper+lazy+overlap+pingpong' or its symbol "
    "'flash_fwd_sm90_fp16_d128_m128_n128_g2_b2_q1_lazy_overlap_pingpong'"
)


def parse_kernel_name_into_config(text: str) -> KernelConfig:
    """The configuration that `text` names, in any of its family's spellings."""
    if isinstance(text, str) and len(text) <= MAX_TEXT:
        for parse in _PARSERS:
            config = parse(text)
            if config is not None:
                return config
    raise ValueError(_explain(text))


def parse_sm80_name(text: str) -> FlashForwardKernelConfig:
    """As parse_kernel_name_into_config, for a name of the Ampere family."""
    config = parse_kernel_name_into_config(text)
    if not isinstance(config, FlashForwardKernelConfig):
        raise ValueError(f"{text!r} names a kernel of another family: {type(config).__name__}")
    return config


def parse_symbol(text: str) -> tuple[KernelConfig, bool]:
    """The configuration of a kernel symbol, and whether it is the general kernel's."""
    if len(text) <= MAX_TEXT:
        sm80 = _parse_symbol(text.removesuffix(GENERAL_SUFFIX))
        if sm80 is not None:
            return sm80, text.endswith(GENERAL_SUFFIX)
        for parse in (parse_hopper_symbol, _parse_previous_symbol):
            config = parse(text)
            if config is not None:
                return config, False
    raise ValueError(_explain(text))


def _parse_demangled(text: str) -> FlashForwardKernelConfig | None:
    return _from_positional(_demangled_pattern(typed=False).fullmatch(text))


def _parse_demangled_typed(text: str) -> FlashForwardKernelConfig | None:
    return _from_positional(_demangled_pattern(typed=True).fullmatch(text))


def _parse_short_form(text: str) -> FlashForwardKernelConfig | None:
    return _from_named(_short_pattern().fullmatch(_cell(text)))


def _parse_hopper_short_form(text: str) -> KernelConfig | None:
    return parse_hopper_short_form(_cell(text))


def _cell(text: str) -> str:
    """The first cell, if `text` is a row of a table."""
    row = re.fullmatch(r"\| *(?P<cell>[^|\r\n]*[^|\r\n ]) *\|(?:[^\r\n]*\|)?", text)
    return row["cell"] if row else text


def _parse_previous_symbol(text: str) -> FlashForwardKernelConfig | None:
    return _parse_previous(text) if re.fullmatch(r"\w+", text) else None


def _parse_previous(text: str) -> FlashForwardKernelConfig | None:
    parts = split_name(text)
    if parts is None:
        return None
    config = _parse_symbol(parts[0]) or _parse_short_form(parts[0])
    try:
        return config and at_step(config, parts[1])
    except ValueError:
        return None


def _parse_symbol(text: str) -> FlashForwardKernelConfig | None:
    return _from_named(_symbol_pattern().fullmatch(text))


_PARSERS: tuple[Callable[[str], KernelConfig | None], ...] = (
    _parse_symbol,
    parse_hopper_symbol,
    _parse_short_form,
    _parse_hopper_short_form,
    _parse_demangled,
    _parse_demangled_typed,
    _parse_previous,
)


@cache
def _demangled_pattern(typed: bool) -> re.Pattern[str]:
    values = {"DType": _SCALAR_TYPE, "int": _NUMBER, "bool": "[01]"}
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
    shape = ", ".join(f"(?P<{name}>{_NUMBER})" for name in _SHAPE_FIELDS)
    load = "_".join(f"(?P<{name}>{_NUMBER})" for name in _LOAD_FIELDS)
    before = "".join(rf"(?P<{name}>{word}\+)?" for name, word in SHORT_FLAGS_BEFORE_LOAD)
    after = "".join(rf"(?P<{name}>\+{word})?" for name, word in SHORT_FLAGS_AFTER_LOAD)
    return re.compile(rf"\((?P<dtype>FP16|BF16), {shape}\): {before}load_{load}_tiles{after}")


@cache
def _symbol_pattern() -> re.Pattern[str]:
    letters = zip(_SHAPE_FIELDS, "drcw", strict=True)
    shape = "_".join(f"{letter}(?P<{name}>{_NUMBER})" for name, letter in letters)
    load = "_".join(f"(?P<{name}>{_NUMBER})" for name in _LOAD_FIELDS)
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


def _explain(text: object) -> str:
    shown = repr(text) if len(repr(text)) <= 200 else repr(text)[:200] + "..."
    message = f"{shown} does not name a kernel configuration: {EXPECTED}"
    nearest = nearest_names(text, limit=1) if isinstance(text, str) else []
    return message + (f"; the nearest valid name is {nearest[0]!r}" if nearest else "")


def nearest_names(text: str, limit: int = 3) -> list[str]:
    """Known spellings that look most like `text`."""
    from .sets import known_configs  # late: config_sets imports this module

    is_symbol = text.strip().startswith("flash_")
    configs = known_configs()
    names = [c.kernel_name() if is_symbol else c.short_form() for c in configs]
    return difflib.get_close_matches(text.strip()[:200], names, n=limit, cutoff=0.5)
