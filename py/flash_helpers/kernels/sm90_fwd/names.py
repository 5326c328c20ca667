"""Reading a Hopper-family configuration back from its symbol or its short form."""

import re
from dataclasses import fields
from functools import cache

from ..contract import CppEnum
from ..spelling import NUMBER, cell, config_of
from .config import GROUP_ROWS, OPTIONS, HopperForwardKernelConfig

SPELLINGS = (
    "'(FP16, 128, 128, 128, 2, 2, 1): hopper+lazy+overlap+pingpong' or its symbol "
    "'flash_fwd_sm90_fp16_d128_m128_n128_g2_b2_q1_lazy_overlap_pingpong'"
)
_SHAPE = ("d_head", "block_m", "block_n", "n_mma_groups", "n_buffers", "n_q_buffers")
_LETTERS = "dmngbq"


def parse_symbol(text: str) -> HopperForwardKernelConfig | None:
    """`flash_fwd_sm90_fp16_d128_m128_n128_g2_b2_q1_lazy_overlap_pingpong`; else None."""
    return _config(_symbol_pattern().fullmatch(text))


def parse_short_form(text: str) -> HopperForwardKernelConfig | None:
    """`(FP16, 128, 128, 128, 2, 2, 1): hopper+lazy+overlap+pingpong`, alone or as the
    first cell of a table row; None for anything else."""
    return _config(_short_pattern().fullmatch(cell(text)))


@cache
def _symbol_pattern() -> re.Pattern[str]:
    shape = "_".join(
        f"{letter}(?P<{name}>{NUMBER})" for name, letter in zip(_SHAPE, _LETTERS, strict=True)
    )
    return re.compile(f"flash_fwd_sm90_(?P<dtype>fp16|bf16)_{shape}{_options('_')}")


@cache
def _short_pattern() -> re.Pattern[str]:
    shape = ", ".join(f"(?P<{name}>{NUMBER})" for name in _SHAPE)
    return re.compile(rf"\((?P<dtype>FP16|BF16), {shape}\): hopper{_options('[+]')}")


def _options(separator: str) -> str:
    return "".join(
        f"(?:{separator}{word}(?P<{field}>{_suffixes(_KINDS[field])}))?" for field, word in OPTIONS
    )


_KINDS: dict[str, type] = {
    field.name: HopperForwardKernelConfig.kind(str(field.type))
    for field in fields(HopperForwardKernelConfig)
}


def _suffixes(kind: type) -> str:
    """What may stand behind the word of an option that is not off."""
    if kind is bool:
        return ""
    if issubclass(kind, CppEnum):
        return "|".join(member.name.lower() for member in kind if member)
    return "[1-9][0-9]{0,4}"


def _config(match: re.Match[str] | None) -> HopperForwardKernelConfig | None:
    if match and int(match["block_m"]) != GROUP_ROWS * int(match["n_mma_groups"]):
        return None
    return config_of(HopperForwardKernelConfig, match)
