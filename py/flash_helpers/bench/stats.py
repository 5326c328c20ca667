"""Summaries of repeated measurements. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


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

    @property
    def noise(self) -> float:
        """Half the interquartile range over the median: robust against a few outliers."""
        return (self.upper_quartile - self.lower_quartile) / 2 / self.median


def summarize(sample: Sequence[float]) -> Summary:
    """Raises ValueError for an empty sample or one with a value that is not positive and finite."""
    if not sample:
        raise ValueError("there is nothing to summarize: the sample is empty")
    wrong = [x for x in sample if not (math.isfinite(x) and x > 0)]
    if wrong:
        raise ValueError(f"a time must be positive and finite, got {wrong[0]}")
    quartiles = (
        statistics.quantiles(sample, n=4, method="inclusive")
        if len(sample) > 1
        else [sample[0]] * 3
    )
    return Summary(
        n=len(sample),
        median=statistics.median(sample),
        mean=statistics.fmean(sample),
        minimum=min(sample),
        maximum=max(sample),
        lower_quartile=quartiles[0],
        upper_quartile=quartiles[2],
        stdev=statistics.stdev(sample) if len(sample) > 1 else 0.0,
    )


def tflops(flop: int, milliseconds: float) -> float:
    """10^12 floating-point operations per second."""
    return flop / milliseconds / 1e9
