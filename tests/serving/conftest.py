"""Outputs and scratch memory hold NaN before a kernel writes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .problems import poisoned_memory as poisoned


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    with poisoned():
        yield
