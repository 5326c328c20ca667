"""What a tuner minimizes: time, energy, memory, or a weighted mean of them."""

from __future__ import annotations

import argparse
import difflib
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .results import Measurement
from .runs import observations

TIME, ENERGY, MEMORY = "time", "energy", "memory"
OBJECTIVES = {
    TIME: "milliseconds of a call",
    ENERGY: "joules of a call (NVML)",
    MEMORY: "bytes of device memory in use during a call",
}


class ObjectiveError(RuntimeError):
    """A kernel lacks what is to be minimized; the message says why."""


@dataclass(frozen=True)
class Objective:
    """The weighted geometric mean: with weights 2 and 1, to be 1 % better in the first is worth
    2 % in the second, in whatever units they are."""

    weights: Mapping[str, float] = field(default_factory=lambda: {TIME: 1.0})

    @classmethod
    def parse(cls, text: str) -> Objective:
        """`energy` or `time=2,energy=1`. Raises argparse.ArgumentTypeError."""
        weights: dict[str, float] = {}
        for item in text.split(","):
            name, _, number = item.partition("=")
            if name not in OBJECTIVES:
                near = difflib.get_close_matches(name, OBJECTIVES, n=1, cutoff=0.0)
                raise argparse.ArgumentTypeError(
                    f"{name!r} is not an objective: expected some of {', '.join(OBJECTIVES)} with "
                    f"weights, as in time=2,energy=1; the nearest is {near[0]!r}"
                )
            if name in weights:
                raise argparse.ArgumentTypeError(f"{text!r} names {name} twice")
            weights[name] = _weight(number or "1", item)
        return cls(weights)

    @property
    def needs_energy(self) -> bool:
        return ENERGY in self.weights

    def __str__(self) -> str:
        if len(self.weights) == 1:
            return next(iter(self.weights))
        return ",".join(f"{name}={weight:g}" for name, weight in self.weights.items())

    def cost(self, m: Measurement) -> float:
        """In a unit of its own; the lower the better, and twice as high is twice as bad. Raises
        ObjectiveError."""
        return self._mean({name: _value(m, name) for name in self.weights})

    def observations(self, m: Measurement) -> list[float]:
        """One cost for each independent observation. Time and energy are observed apart from each
        other: the first of the one is taken with the first of the other."""
        series = {name: _series(m, name) for name in self.weights if name != MEMORY}
        n = min(map(len, series.values()), default=len(observations(m)))
        fixed = {MEMORY: _value(m, MEMORY)} if MEMORY in self.weights else {}
        return [
            self._mean(fixed | {name: values[i] for name, values in series.items()})
            for i in range(n)
        ]

    def ranked(self, measurements: Sequence[Measurement]) -> list[Measurement]:
        return sorted(measurements, key=self.cost)

    def _mean(self, values: Mapping[str, float]) -> float:
        if len(values) == 1:
            return next(iter(values.values()))
        total = sum(self.weights.values())
        return math.exp(sum(w * math.log(values[name]) for name, w in self.weights.items()) / total)


def _weight(text: str, item: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < 1e6:
        raise argparse.ArgumentTypeError(f"{item!r}: a weight is a number above 0")
    return weight


def _series(m: Measurement, name: str) -> list[float]:
    if name == TIME:
        return observations(m)
    joules = [float(value) for row in m.rows for value in row.joules]
    if not joules or min(joules) <= 0:
        why = m.row.energy_note or "it was measured without"
        raise ObjectiveError(f"there is no energy of {m.label}: {why}")
    return joules


def _value(m: Measurement, name: str) -> float:
    if name == TIME:
        return m.summary.median
    if name == ENERGY:
        return statistics.fmean(_series(m, ENERGY))
    n_bytes = m.row.memory_bytes
    if not n_bytes:
        raise ObjectiveError(f"the memory that {m.label} uses is not known")
    return float(n_bytes)
