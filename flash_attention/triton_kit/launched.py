"""Launches as they went, for those who want to repeat them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_HERE = threading.local()


@dataclass(frozen=True)
class Launched:
    """A launch: what Triton compiled, the grid, all that the kernel's signature names, in its order
    (constants too), and the positions of the tensors that the kernel writes to."""

    kernel: Any
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]
    written: tuple[int, ...]


@contextmanager
def noted() -> Iterator[list[Launched]]:
    """The launches of this thread inside, whether they succeed as a whole or not."""
    before, launches = noting(), list[Launched]()
    _HERE.launches = launches
    try:
        yield launches
    finally:
        _HERE.launches = before
        if before is not None:
            before += launches


def noting() -> list[Launched] | None:
    """Where launches of this thread are noted; None where nobody wants to know."""
    return getattr(_HERE, "launches", None)
