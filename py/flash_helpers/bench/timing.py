"""Times several functions on the GPU side by side, in one process and in random order."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Timer = Callable[[Callable[[], object]], float]


@dataclass(frozen=True)
class Policy:
    """How each function is sampled."""

    warmups: int
    repeats: int  # samples of each function
    cold_l2: bool  # overwrite the L2 cache before every sample
    burst: int = 4  # consecutive samples of one function


def interleaved(
    functions: Mapping[str, Callable[[], object]], policy: Policy, timer: Timer, seed: int
) -> dict[str, list[float]]:
    """Samples in milliseconds, by function.

    The card is limited by its power, so what ran before decides the clock: functions take turns
    in short bursts, in an order that is drawn anew for every round.
    """
    if policy.repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {policy.repeats}")
    order = list(functions)
    chance = random.Random(seed)  # noqa: S311  an order, nothing secret
    for _ in range(policy.warmups):
        for name in order:
            functions[name]()
    samples: dict[str, list[float]] = {name: [] for name in functions}
    while any(len(taken) < policy.repeats for taken in samples.values()):
        chance.shuffle(order)
        for name in order:
            for _ in range(min(policy.burst, policy.repeats - len(samples[name]))):
                samples[name].append(timer(functions[name]))
    return samples


# How long the GPU waits before each sample, in its cycles (about 0.2 ms): the host has queued the
# call by then, so that a slow caller is not timed along with its kernel.
_HEAD_START_CYCLES = 400_000


class CudaTimer:
    """Milliseconds between two events around a call, on the current stream of a device."""

    def __init__(self, device: torch.device, *, cold_l2: bool) -> None:
        import torch

        self._events = [
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(2)
        ]
        l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        self._flush = torch.empty(2 * l2_bytes if cold_l2 else 0, dtype=torch.int8, device=device)

    def __call__(self, function: Callable[[], object]) -> float:
        import torch

        before, after = self._events
        if self._flush.numel():
            self._flush.zero_()
        torch.cuda._sleep(_HEAD_START_CYCLES)  # type: ignore[no-untyped-call]
        before.record()
        function()
        after.record()
        after.synchronize()
        return float(before.elapsed_time(after))
