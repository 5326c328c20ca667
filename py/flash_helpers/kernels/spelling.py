"""What the spellings of every family have in common: strict and anchored. A spelling is accepted
only as a whole; blanks, signs, leading zeros, other digits than ASCII's, doubled or reordered flags
and anything before or after are errors.
"""

import re
from dataclasses import fields
from typing import Any, TypeVar

from ..base.dtypes import DType
from .contract import CppEnum, KernelConfig

Config = TypeVar("Config", bound=KernelConfig)

MAX_TEXT = 4096  # longer than any table row; keeps the error message and the search short

# No leading zeros: every number has one spelling, so a name has one configuration and back.
NUMBER = "(?:0|[1-9][0-9]{0,4})"


def cell(text: str) -> str:
    """The first cell, if `text` is a row of a table."""
    row = re.fullmatch(r"\| *(?P<cell>[^|\r\n]*[^|\r\n ]) *\|(?:[^\r\n]*\|)?", text)
    return row["cell"] if row else text


def config_of(kind: type[Config], match: re.Match[str] | None) -> Config | None:
    """The configuration whose fields are the groups of a match: a switch is on where its group took
    part, an option that did not is 0. None without a match, and for a number out of range, which is
    reported like any other misspelling."""
    if match is None:
        return None
    try:
        return kind(**{f.name: _value(kind.kind(str(f.type)), match[f.name]) for f in fields(kind)})
    except ValueError:
        return None


def _value(kind: type, text: str | None) -> Any:
    if kind is bool:
        return text is not None
    if kind is DType:
        return DType.from_string(text or "")
    if issubclass(kind, CppEnum):
        return kind[text.upper()] if text else kind(0)
    return int(text or 0)
