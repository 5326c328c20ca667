"""The optimistic softmax of a group's 64 rows, as sm90/forward/consumer.cuh and
`RowStatistics` keep it, in fp64: not for its result, but for what it does when."""

from __future__ import annotations

from typing import Any

import numpy as np

from flash_helpers.kernels.sm90_fwd.config import GROUP_ROWS

_FACTOR = 1.5  # of an average block
_LARGEST_LIMIT = 2.0**15
_LARGEST_SUM = 2.0**100
_LARGE_EXPONENT = 1920.0
_WARP_ROWS = 16


class GroupRows:
    """`scores` [row][key] are exponents of 2, -inf where hidden. Four threads share a row."""

    def __init__(self, block_n: int) -> None:
        self.block_n = block_n
        self.m = np.full(GROUP_ROWS, -np.inf)
        self.sum = np.zeros(GROUP_ROWS)
        self.limit = np.ones(GROUP_ROWS)  # negative: never by a correction

    def ordinary(self, scores: Any) -> None:
        """A step that knows the maxima."""
        self._move(np.maximum(self.m, scores.max(axis=1)))
        self._add(scores)

    def set_limits(self, seen: Any) -> None:
        """`seen` [row]: keys so far."""
        average = self.sum * self.block_n / np.maximum(seen, 1)
        limits = np.clip(_FACTOR * average, 1.0, _LARGEST_LIMIT)
        self.limit = np.where(np.abs(self.m) >= _LARGE_EXPONENT, -1.0, limits)

    def optimistic(self, scores: Any) -> tuple[bool, bool]:
        """Whether m had to rise by a correction, and whether the scores were multiplied again."""
        sums = self._p(scores).reshape(GROUP_ROWS, self.block_n // 8, 4, 2).sum(axis=(1, 3))
        exceeded = (sums > self.limit[:, None]).any(axis=1)
        event = bool(exceeded.any())
        lost = event and bool((self.limit < 0).any() or (sums > _LARGEST_SUM).any())
        rows = np.ones(GROUP_ROWS, bool) if lost else _of_warps(exceeded)
        self._move(np.where(rows, np.maximum(self.m, scores.max(axis=1)), self.m))
        self._add(scores)
        return event and not lost, lost

    def _add(self, scores: Any) -> None:
        self.sum += self._p(scores).sum(axis=1)

    def _p(self, scores: Any) -> Any:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(scores == -np.inf, 0.0, np.exp2(scores - self.m[:, None]))

    def _move(self, m: Any) -> None:
        with np.errstate(invalid="ignore"):
            self.sum *= np.where(m > self.m, np.exp2(self.m - m), 1.0)
        self.m = m


def _of_warps(rows: Any) -> Any:
    """For each row, whether any row of its warp is set."""
    return rows.reshape(-1, _WARP_ROWS).any(axis=1).repeat(_WARP_ROWS)
