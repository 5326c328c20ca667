"""Times several functions on the GPU side by side, in one process and in random order."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from .lazy import torch


@dataclass(frozen=True)
class Sample:
    """One timed call. `began` and `ended` are time.monotonic(): they tell which clock readings
    belong to it."""

    ms: float
    sm_mhz: float | None = None  # by the device's own counter, just before the call
    began: float = 0.0
    ended: float = 0.0


Timer = Callable[[Callable[[], object]], Sample]
Bursts = list[list[Sample]]


@dataclass(frozen=True)
class Policy:
    """How each function is sampled."""

    warmups: int
    repeats: int  # samples of each function, at least
    cold_l2: bool  # overwrite the L2 cache before every sample
    burst: int = 2  # consecutive samples of one function
    target_noise: float = 0.0  # stop when every standard error / median is below; 0: at repeats
    max_repeats: int = 0  # samples of each function, at most; 0: repeats
    energy_rounds: int = 0  # how often a function's energy is measured; 0: not at all
    energy_s: float = 0.5  # for how long each time
    graph: bool = False  # replay a CUDA graph instead of calling: for kernels of microseconds

    def __post_init__(self) -> None:
        if self.repeats < 1 or self.burst < 1 or self.warmups < 0:
            raise ValueError(
                f"repeats and burst must be at least 1 and warmups at least 0, got {self}"
            )
        if self.energy_rounds < 0 or not 0 < self.energy_s <= 60:
            raise ValueError(f"energy takes 0 rounds or more of up to 60 s, got {self}")
        if not 0 <= self.target_noise < 1:
            raise ValueError(f"target_noise must be in 0..1, got {self.target_noise}")
        if self.max_repeats and self.max_repeats < self.repeats:
            raise ValueError(f"max_repeats {self.max_repeats} is less than {self.repeats} repeats")

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Policy:
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


def interleaved(
    functions: Mapping[str, Callable[[], object]],
    policy: Policy,
    timer: Timer,
    seed: int,
    announce: Callable[[str], None] = lambda name: None,
) -> dict[str, Bursts]:
    """Samples by function, in bursts. `announce` hears what runs next.

    The card is limited by its power, so what ran before decides the clock: functions take turns
    in short bursts, in a new random order every round. All of them are sampled until the last one
    is quiet enough, so that every round runs the same functions.
    """
    order = list(functions)
    chance = random.Random(seed)  # noqa: S311  an order, nothing secret
    for name in order * policy.warmups:
        announce(name)
        functions[name]()
    bursts: dict[str, Bursts] = {name: [] for name in functions}
    left = policy.repeats
    most = max(policy.max_repeats, policy.repeats)
    taken = 0
    while left > 0:
        size = min(policy.burst, left)
        chance.shuffle(order)
        for name in order:
            announce(name)
            bursts[name].append([timer(functions[name]) for _ in range(size)])
        taken, left = taken + size, left - size
        if left == 0 and policy.target_noise and not _quiet(bursts, policy.target_noise):
            left = min(policy.burst, most - taken)
    return bursts


def _quiet(bursts: Mapping[str, Bursts], target: float) -> bool:
    return all(
        standard_error([[sample.ms for sample in burst] for burst in taken]) <= target
        for taken in bursts.values()
    )


def standard_error(bursts: Sequence[Sequence[float]]) -> float:
    """The standard error of the mean of the bursts' means, relative to it; inf for a single burst.

    The burst is the unit: on an H200 at its power limit, the means of bursts scatter by 1.5-2.2 %
    and the samples within one by 0.2-1.4 % (docs/results/raw), so samples are not independent.
    """
    means = [statistics.fmean(burst) for burst in bursts]
    if len(means) < 2:
        return math.inf
    return statistics.stdev(means) / math.sqrt(len(means)) / statistics.fmean(means)


# How long the GPU waits before each sample, in its cycles (about 0.2 ms): the host has queued the
# call by then, so that a slow caller is not timed along with its kernel.
_HEAD_START_CYCLES = 400_000
_LEAD_CYCLES = 20_000  # before that, so that the wait itself is queued before it is its turn


class CudaTimer:
    """Milliseconds between two events around a call, on the current stream of a device. The wait
    before it is timed too: a known number of cycles, which gives the clock that the SMs run at."""

    def __init__(self, device: torch.device, *, cold_l2: bool) -> None:
        self._events = [
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(3)
        ]
        l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        self._flush = torch.empty(2 * l2_bytes if cold_l2 else 0, dtype=torch.int8, device=device)

    def __call__(self, function: Callable[[], object]) -> Sample:
        wait, before, after = self._events
        began = time.monotonic()
        if self._flush.numel():
            self._flush.zero_()
        torch.cuda._sleep(_LEAD_CYCLES)  # type: ignore[no-untyped-call]
        wait.record()
        torch.cuda._sleep(_HEAD_START_CYCLES)  # type: ignore[no-untyped-call]
        before.record()
        function()
        after.record()
        after.synchronize()
        mhz = _HEAD_START_CYCLES / wait.elapsed_time(before) / 1e3
        return Sample(float(before.elapsed_time(after)), mhz, began, time.monotonic())
