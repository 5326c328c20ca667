"""How much slower is B than A? The interval that belongs to the Mann-Whitney test.

Observations are means of bursts (timing.standard_error says why). Nothing is assumed of their
distribution: the interval for the shift of log times is between two order statistics of all
pairwise differences (Hodges and Lehmann 1963), taken from the exact distribution of U.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

_EXACT_UP_TO = 60  # observations on a side; beyond, U is as good as normal


@dataclass(frozen=True)
class Shift:
    """Of NEW against BASE as a factor: 1.05 is 5 % slower. `low` is 0 and `high` infinite where
    there are too few observations for the confidence that was asked for."""

    estimate: float
    low: float
    high: float

    def against(self, anchor: Shift) -> Shift:
        """Relative to something that is known not to have changed. The two doubts are
        independent, so they add like the sides of a right angle, in log time."""
        estimate = self.estimate / anchor.estimate
        if not (self.low and anchor.low):
            return Shift(estimate, 0.0, math.inf)
        below = math.hypot(
            math.log(self.estimate / self.low), math.log(anchor.high / anchor.estimate)
        )
        above = math.hypot(
            math.log(self.high / self.estimate), math.log(anchor.estimate / anchor.low)
        )
        return Shift(estimate, estimate * math.exp(-below), estimate * math.exp(above))


def shift(base: Sequence[float], new: Sequence[float], alpha: float) -> Shift:
    """With confidence 1 - alpha. Raises ValueError for an empty side."""
    if not base or not new:
        raise ValueError("there is nothing to compare: one side has no observation")
    logs = [[math.log(value) for value in side] for side in (base, new)]
    differences = sorted(y - x for x in logs[0] for y in logs[1])
    estimate = math.exp(statistics.median(differences))
    k = critical_value(len(base), len(new), alpha)
    if k < 0:
        return Shift(estimate, 0.0, math.inf)
    # The test rejects where at most k differences lie on the wrong side of zero.
    return Shift(estimate, math.exp(differences[k]), math.exp(differences[-1 - k]))


def p_faster(fast: Sequence[float], slow: Sequence[float]) -> float:
    """One-sided Mann-Whitney test: how likely `fast` would look so much faster if it were not."""
    try:
        from scipy.stats import mannwhitneyu
    except ImportError:  # not on every GPU machine
        return p_faster_without_scipy(fast, slow)
    return float(mannwhitneyu(fast, slow, alternative="less").pvalue)


def p_faster_without_scipy(fast: Sequence[float], slow: Sequence[float]) -> float:
    """The same; exact for up to 60 observations a side, but for ties."""
    n, m = len(fast), len(slow)
    u = sum((x > y) + (x == y) / 2 for x in fast for y in slow)
    if max(n, m) > _EXACT_UP_TO:
        deviation = math.sqrt(n * m * (n + m + 1) / 12)
        return statistics.NormalDist().cdf((u + 0.5 - n * m / 2) / deviation)
    return sum(_u_counts(n, m)[: math.floor(u) + 1]) / math.comb(n + m, n)


@cache
def critical_value(n: int, m: int, alpha: float) -> int:
    """The largest k with P(U <= k) <= alpha / 2 if nothing differs; -1 if there is none."""
    if max(n, m) > _EXACT_UP_TO:
        mean, deviation = n * m / 2, math.sqrt(n * m * (n + m + 1) / 12)
        z = statistics.NormalDist().inv_cdf(1 - alpha / 2)
        return max(-1, math.floor(mean - z * deviation) - 1)
    counts = _u_counts(n, m)
    limit = alpha / 2 * math.comb(n + m, n)
    total, k = 0, -1
    for count in counts:
        total += count
        if total > limit:
            return k
        k += 1
    return k


@cache
def _u_counts(n: int, m: int) -> tuple[int, ...]:
    """How many of the arrangements of n and m observations have U = 0, 1, 2, ...: the
    coefficients of the Gaussian binomial, by multiplying and dividing with (1 - q^i)."""
    size = n * m + 1
    counts = [1] + [0] * (size - 1)
    for i in range(1, n + 1):
        for u in range(size - 1, m + i - 1, -1):  # times 1 - q^(m + i)
            counts[u] -= counts[u - m - i]
        for u in range(i, size):  # divided by 1 - q^i
            counts[u] += counts[u - i]
    return tuple(counts)
