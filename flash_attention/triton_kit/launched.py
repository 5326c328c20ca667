"""Launches as they went, for those who want to repeat them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Launched:
    """A launch: what Triton compiled, the grid, all that the kernel's signature names, in its order
    (constants too), the positions of the tensors that the kernel writes to, and of those among them
    that it finds zero and leaves zero."""

    kernel: Any
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]
    written: tuple[int, ...]
    zeroed: tuple[int, ...] = ()


# Where launches of this thread are noted; None where nobody wants to know. Asked at every call: a
# thread's variable that was never set takes ten times as long.
HERE: ContextVar[list[Launched] | None] = ContextVar("launches", default=None)
noting = HERE.get


@contextmanager
def noted() -> Iterator[list[Launched]]:
    """The launches of this thread inside, whether they succeed as a whole or not."""
    before, launches = noting(), list[Launched]()
    token = HERE.set(launches)
    try:
        yield launches
    finally:
        HERE.reset(token)
        if before is not None:
            before += launches
