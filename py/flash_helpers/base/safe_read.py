"""Reading files that may be damaged, or no files at all: what is wrong with them is an OSError or a
ValueError that says so, and reading ends."""

import errno
import json
import math
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from .words import kind_of

# Nothing of ours nests so deeply; Python's own functions on such values (json.dumps, deepcopy,
# comparisons) begin to raise RecursionError at some hundreds.
MOST_LEVELS = 50


def read_regular(path: Path) -> bytes:
    """The content of a file or of what a link leads to. Raises OSError, also for what is not a
    regular file: a FIFO would be waited for, and /dev/zero read for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return file.read()


def parse_json(text: str | bytes, *, finite: bool = True) -> Any:
    """The value. Raises ValueError, and nothing else, for what is not JSON, for nesting beyond
    MOST_LEVELS, for halves of surrogate pairs (which no file and no terminal takes), and unless
    `finite` is off for NaN and infinities (also 1e999)."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"nested more than {MOST_LEVELS} levels deep") from None
    check_json(value, finite=finite)
    return value


def check_json(value: object, *, finite: bool = True) -> None:
    """What parse_json demands of a value, for those that did not come as text."""
    level: list[object] = [value]
    for _ in range(MOST_LEVELS):
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.keys()
                inner += item.values()
            elif isinstance(item, list | tuple):
                inner += item
            else:
                _check_leaf(item, finite)
        if not inner:
            return
        level = inner
    raise ValueError(f"nested more than {MOST_LEVELS} levels deep")


def _check_leaf(item: object, finite: bool) -> None:
    if isinstance(item, str):
        if not item.isascii():
            try:
                item.encode()
            except UnicodeEncodeError:
                raise ValueError(f"text with half a surrogate pair: {item[:40]!a}") from None
    elif isinstance(item, float):
        if finite and not math.isfinite(item):
            raise ValueError(f"{item} is not a finite number")
    elif not isinstance(item, int | None):
        raise ValueError(f"{kind_of(item)} is not JSON")


def parse_toml(text: str) -> dict[str, Any]:
    """Raises ValueError (TOMLDecodeError is one), and nothing else."""
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"nested more than {MOST_LEVELS} levels deep") from None
    return value
