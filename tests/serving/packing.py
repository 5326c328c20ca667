"""Which of Hopper's serving kernels take a call: of tiles with rows of one head, or of all heads
that share a KV head, or of none; whatever its sizes are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from flash_attention.serving import short_way
from flash_helpers.kernels.sm90_serve import config

ALL, NONE = range(1 << 30), range(0)
# What stands in place of (PACKED_HEADS, PACKED_EQUAL, PACKED_MIXED, MANY_HEADS, LEAST_ROWS).
_WAYS: dict[str, tuple[object, ...]] = {
    "all heads": (config.PACKED_HEADS, ALL, ALL, 0, 0),
    "one head": (NONE, NONE, NONE, 0, 0),
    "the other family": (NONE, NONE, NONE, 0, 1 << 30),
}
_NAMES = ("PACKED_HEADS", "PACKED_EQUAL", "PACKED_MIXED", "MANY_HEADS", "LEAST_ROWS")


@contextmanager
def rows_of(way: str) -> Iterator[None]:
    """Inside, calls are for the kernels that `way` names: "all heads", "one head" or "the other
    family"; none is remembered for the short way, which would keep the choice."""
    with ExitStack() as stack:
        for name, value in zip(_NAMES, _WAYS[way], strict=True):
            stack.enter_context(mock.patch.object(config, name, value))
        stack.enter_context(mock.patch.object(short_way, "remember", lambda *_, **__: None))
        yield
