"""What may stand in the fields of a row (row.py). A store may have been edited, a worker may send
anything; what computes with rows relies on this."""

import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

# A time below is lost in the rounding of rows, one above is longer than any --time_limit allows.
LEAST_MS, MOST_MS = 1e-6, 1e7
_MOST = 1e15  # of any other figure: sums and squares of such are still finite
_MOST_SIZE = 2**31

Check = Callable[[Any], bool]


@dataclass(frozen=True)
class Kind:
    """What a field may hold, as a check and in words."""

    check: Check
    expected: str


def problem_with(row: Mapping[str, Any], fields: Mapping[str, Kind]) -> str:
    """What is wrong with a field that is there, in a sentence; else an empty string."""
    for name, kind in fields.items():
        if name in row and not kind.check(row[name]):
            return f"{name} is {_shown(row[name])}: expected {kind.expected}"
    samples = row.get("samples_ms", [])
    for number, ms in enumerate(samples):
        if not is_time(ms):
            return f"samples_ms[{number}] is {_shown(ms)}: expected {LEAST_MS:g} to {MOST_MS:g} ms"
    if row.get("bursts") and sum(row["bursts"]) != len(samples):
        return f"bursts add up to {sum(row['bursts'])}, but there are {len(samples)} samples"
    spoilt = row.get("throttled") or {}
    wrong = [i for i in spoilt if not (_is_match("[0-9]{1,9}", i) and int(i) < len(samples))]
    if wrong:
        return f"throttled names sample {_shown(wrong[0])} of {len(samples)}"
    return ""


def is_time(ms: object) -> TypeGuard[float]:
    """Milliseconds that something can have taken."""
    return _is_number(ms) and LEAST_MS <= ms <= MOST_MS


def is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST


def is_size(value: object) -> TypeGuard[int]:
    """Of a dimension: at least 1."""
    return is_count(value) and 1 <= value <= _MOST_SIZE


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def is_figure(value: object) -> TypeGuard[int | float]:
    return _is_number(value) and 0 <= value <= _MOST


def _is_match(pattern: str, text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(pattern, text) is not None


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | bool) or _is_number(value)


def _are_scalars(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict) and all(map(_is_scalar, value.values()))


_SHAPE: dict[str, Check] = {
    "dtype": functools.partial(_is_match, "[A-Za-z0-9_]{1,20}"),  # files are named after it
    **dict.fromkeys(("batch", "n_heads", "n_kv_heads", "seq_len", "d_head"), is_size),
    **dict.fromkeys(("d_v", "kv_len", "slowed_kv_len"), is_size),
    "seqlen_k": is_count,
    "causal": lambda value: isinstance(value, bool),
    "seed": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "slowed_kernel": lambda value: isinstance(value, str),
}
_POLICY: dict[str, Check] = {
    "stage": lambda value: isinstance(value, str),
    **dict.fromkeys(("cold_l2", "graph"), lambda value: isinstance(value, bool)),
}
_CLOCKS = ("sm_mhz", "watts", "celsius", "power_limited")


def _is_object_of(checks: Mapping[str, Check]) -> Check:
    def check(value: object) -> bool:
        return _are_scalars(value) and all(
            test(value[name]) for name, test in checks.items() if name in value
        )

    return check


def _are_clocks(value: object) -> bool:
    if not value:
        return value is None or isinstance(value, dict)
    return isinstance(value, dict) and all(is_figure(value.get(name)) for name in _CLOCKS)


def _is_list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


TEXT = Kind(lambda value: isinstance(value, str), "text")
COUNT = Kind(is_count, "a whole number from 0 on")
WORK = Kind(lambda value: is_count(value) and value > 0, "a count")
FIGURE = Kind(is_figure, "a number from 0 on")
SAMPLES = Kind(lambda value: isinstance(value, list), "a list of milliseconds")
SIZES = Kind(_is_list_of(is_size), "a list of sizes")
FIGURES = Kind(_is_list_of(is_figure), "a list of numbers from 0 on")
REASONS = Kind(
    lambda value: value is None or (isinstance(value, dict)
    and all(isinstance(reason, str) for reason in value.values())),
    "reasons by the number of the sample",
)  # fmt: skip
CLOCKS = Kind(_are_clocks, f"an object with {', '.join(_CLOCKS)}")
SHAPE = Kind(_is_object_of(_SHAPE), "an object with the sizes of the problem")
POLICY = Kind(_is_object_of(_POLICY), "an object that says how it was sampled")
SCALARS = Kind(_are_scalars, "an object of plain values")
SCALARS_OR_NONE = Kind(lambda value: value is None or _are_scalars(value), SCALARS.expected)


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 64:  # Python may refuse to print it
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, dict | list):
        return f"a {type(value).__name__} of {len(value)}"
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
