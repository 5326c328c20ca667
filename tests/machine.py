"""How fast this machine is, for bars of time that were set on another."""

from __future__ import annotations

import timeit

# 100,000 turns of an empty loop take Python 1.0 ms where the bars were set.
_TURNS = 100_000
_SECONDS = 1.0e-3


def slowness() -> float:
    """How many times as long as there the same work takes here; 1 where it takes less."""
    loop = f"for _ in range({_TURNS}): pass"
    return max(1.0, min(timeit.repeat(loop, number=1, repeat=30)) / _SECONDS)
