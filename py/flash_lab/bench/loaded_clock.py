"""The clock of the SMs while a kernel runs.

The wait before a sample (timing.py) tells the clock of a GPU that only waits. Under a kernel that
keeps the tensor cores busy it is lower: on an H200 by up to a tenth (docs/measuring.md).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from flash_helpers.base.lazy import torch

_LEAD_CYCLES = 400_000  # about 0.2 ms, in which the host queues the rest
_HEAD_CYCLES = 200_000  # the counting thread has its place before the kernel takes all others
_SURELY_MHZ = 1000.0  # no GPU under load is slower: the counting ends before the kernel does
_SHARE = 0.85  # of the kernel at that clock
_TRIES = 3
_PLAUSIBLE_MHZ = (200.0, 4000.0)


def clock_between(
    cycles: float, idle_mhz: float, begun_ms: float, kernel_ms: float, ended_ms: float
) -> float | None:
    """The clock since `kernel_ms`, where a thread counts `cycles` from `begun_ms` to `ended_ms`
    and the clock up to `kernel_ms` is `idle_mhz`. None if that makes no sense."""
    before = idle_mhz * 1e3 * (kernel_ms - begun_ms)
    if ended_ms <= kernel_ms or cycles <= before:
        return None
    mhz = (cycles - before) / (ended_ms - kernel_ms) / 1e3
    return mhz if _PLAUSIBLE_MHZ[0] < mhz < _PLAUSIBLE_MHZ[1] else None


class LoadedClock:
    """Lets one thread on another stream count cycles beside a kernel."""

    def __init__(self, device: torch.device) -> None:
        self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._events = [
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(5)
        ]
        self._overhead_ms = statistics.median(self._empty() for _ in range(5))

    def mhz(self, function: Callable[[], object], call_ms: float) -> float | None:
        """While `function` runs, which takes `call_ms`; the median of some tries."""
        found = [self._try(function, call_ms) for _ in range(_TRIES)]
        known = [mhz for mhz in found if mhz is not None]
        return statistics.median(known) if known else None

    def _empty(self) -> float:
        """What two events around a kernel of no cycles are apart."""
        begun, ended = self._events[:2]
        torch.cuda._sleep(_LEAD_CYCLES)  # type: ignore[no-untyped-call]
        begun.record()
        torch.cuda._sleep(0)  # type: ignore[no-untyped-call]
        ended.record()
        ended.synchronize()
        return float(begun.elapsed_time(ended))

    def _try(self, function: Callable[[], object], call_ms: float) -> float | None:
        ready, begun, ended, kernel, after = self._events
        cycles = int(_HEAD_CYCLES + _SHARE * call_ms * _SURELY_MHZ * 1e3)
        torch.cuda._sleep(_LEAD_CYCLES)  # type: ignore[no-untyped-call]
        ready.record()
        self._side.wait_event(ready)
        with torch.cuda.stream(self._side):
            begun.record()
            torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
            ended.record()
        torch.cuda._sleep(_HEAD_CYCLES)  # type: ignore[no-untyped-call]
        kernel.record()
        function()
        after.record()
        after.synchronize()
        ended.synchronize()
        head_ms = ready.elapsed_time(kernel) - self._overhead_ms
        if ready.elapsed_time(ended) > ready.elapsed_time(after):
            return None  # it counted on when the kernel had ended
        begun_ms = ready.elapsed_time(begun) + self._overhead_ms
        idle_mhz = _HEAD_CYCLES / head_ms / 1e3
        ends = ready.elapsed_time(kernel), ready.elapsed_time(ended)
        return clock_between(cycles, idle_mhz, begun_ms, *ends)
