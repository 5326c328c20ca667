"""Converters for the arguments of command lines: text to a value, or a refusal that says what is
expected."""

import argparse
import difflib
from collections.abc import Callable, Sequence

from flash_helpers.base.dtypes import DType


def positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def seed(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 2**63):
        raise argparse.ArgumentTypeError(f"{text!r} is not a seed: expected 0 to 2^63 - 1")
    return int(text)


def dtype(text: str) -> DType:
    try:
        return DType.from_string(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive_list(text: str) -> list[int]:
    """Each once, in the order given."""
    return list(dict.fromkeys(map(positive, text.split(","))))


def dtype_list(text: str) -> list[DType]:
    return list(dict.fromkeys(map(dtype, text.split(","))))


def list_of(what: str, known: Sequence[str]) -> Callable[[str], list[str]]:
    """A converter for lists of words."""
    one = one_of(what, known)

    def convert(text: str) -> list[str]:
        return [one(item) for item in dict.fromkeys(text.split(","))]

    return convert


def one_of(what: str, known: Sequence[str]) -> Callable[[str], str]:
    """A converter for a word."""

    def convert(text: str) -> str:
        if text in known:
            return text
        close = difflib.get_close_matches(text, known, n=1)
        nearest = f"; the nearest is {close[0]}" if close else ""
        raise argparse.ArgumentTypeError(
            f"{what} {text!r} is not known: expected {', '.join(known)}{nearest}"
        )

    return convert


def number(low: float, high: float, kind: type = float) -> Callable[[str], float]:
    """A converter for numbers in low..high."""

    def convert(text: str) -> float:
        try:
            value: float = kind(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a number in {low:g}..{high:g}")
        return value

    return convert
