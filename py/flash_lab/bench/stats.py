"""Summaries of repeated measurements. Pure functions."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_WHISKER = 1.5  # Tukey's fences: this many interquartile ranges beyond the quartiles


@dataclass(frozen=True)
class Summary:
    """Of one sample; in its unit (milliseconds, where times are meant)."""

    n: int
    median: float
    mean: float
    minimum: float
    maximum: float
    lower_quartile: float
    upper_quartile: float
    stdev: float
    p90: float
    p99: float
    outliers: int  # beyond the fences

    @property
    def p50(self) -> float:
        return self.median

    @property
    def rsd(self) -> float:
        """Relative standard deviation."""
        return self.stdev / self.mean


def summarize(sample: Sequence[float]) -> Summary:
    """Raises ValueError for an empty sample or one with a value that is not positive and finite."""
    if not sample:
        raise ValueError("there is nothing to summarize: the sample is empty")
    wrong = [x for x in sample if not (math.isfinite(x) and x > 0)]
    if wrong:
        raise ValueError(f"a time must be positive and finite, got {wrong[0]}")
    return Summary(
        n=len(sample),
        median=statistics.median(sample),
        mean=statistics.fmean(sample),
        minimum=min(sample),
        maximum=max(sample),
        lower_quartile=percentile(sample, 25),
        upper_quartile=percentile(sample, 75),
        stdev=statistics.stdev(sample) if len(sample) > 1 else 0.0,
        p90=percentile(sample, 90),
        p99=percentile(sample, 99),
        outliers=len(sample) - len(within_fences(sample)),
    )


def within_fences(sample: Sequence[float]) -> list[float]:
    """Without the outliers."""
    low, high = percentile(sample, 25), percentile(sample, 75)
    reach = _WHISKER * (high - low)
    return [x for x in sample if low - reach <= x <= high + reach]


def percentile(sample: Sequence[float], percent: float) -> float:
    """Linear between the two nearest values, as numpy's default."""
    ordered = sorted(sample)
    position = (len(ordered) - 1) * percent / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def tflops(flop: int, milliseconds: float) -> float:
    """10^12 floating-point operations per second."""
    return flop / milliseconds / 1e9
