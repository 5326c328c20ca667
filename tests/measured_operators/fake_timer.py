"""A timer that times nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from flash_helpers.base.timing import Sample


class FakeTimer:
    """Takes its times from a list, again and again; `calls` counts what was timed."""

    def __init__(self, times: Iterable[float]) -> None:
        self.times = itertools.cycle(times)
        self.calls = 0

    def __call__(self, function: Callable[[], object]) -> Sample:
        function()
        self.calls += 1
        return Sample(next(self.times))
