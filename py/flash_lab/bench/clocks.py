"""Clock, power, temperature and throttle reasons of the GPU while something runs, through NVML.
Reads only: clocks are never set."""

from __future__ import annotations

import functools
import operator
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flash_helpers.base.timing import Sample

# NVML's bits of nvmlDeviceGetCurrentClocksEventReasons. Those that slow the clock beyond what the
# power limit asks for make a sample unusable; a card at its power limit is in its normal state
# under this load, and that is only noted.
SPOILING_REASONS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
POWER_LIMIT = 0x04


@dataclass(frozen=True)
class Reading:
    at: float  # time.monotonic()
    sm_mhz: int
    watts: float
    celsius: int
    reasons: int


def open_nvml(uuid: str) -> tuple[Any, Any, str]:
    """(the module, the handle of the GPU, "") or (None, None, why not). `uuid` is empty for NVML's
    first GPU."""
    try:
        import pynvml  # the package nvidia-ml-py
    except ImportError:
        return None, None, "nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
        by_uuid, by_index = pynvml.nvmlDeviceGetHandleByUUID, pynvml.nvmlDeviceGetHandleByIndex
        return pynvml, by_uuid(uuid) if uuid else by_index(0), ""
    except pynvml.NVMLError as error:
        return None, None, f"NVML refuses: {error}"


@dataclass
class ClockSampler:
    """Samples in a thread while it is entered; `note` says why there are none.

    with ClockSampler(uuid) as clocks:
        ...
    clocks.summary()   # {"sm_mhz": 1785, "watts": 677.0, "celsius": 61, "power_limited": 0.9}
    """

    uuid: str = ""  # of the GPU ("GPU-..."); empty: NVML's first
    period_s: float = 0.02
    note: str = ""
    readings: list[Reading] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> ClockSampler:
        nvml, handle, problem = open_nvml(self.uuid)
        if problem:
            self.note = f"{problem}: no clocks, no throttle reasons"
            return self
        self._thread = threading.Thread(target=self._sample, args=(nvml, handle), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def summary(self) -> dict[str, float]:
        """Medians, and the share of readings at the power limit; empty if there are none."""
        if not self.readings:
            return {}
        capped = sum(bool(r.reasons & POWER_LIMIT) for r in self.readings)
        return {
            "sm_mhz": statistics.median(r.sm_mhz for r in self.readings),
            "watts": round(statistics.median(r.watts for r in self.readings), 1),
            "celsius": statistics.median(r.celsius for r in self.readings),
            "power_limited": round(capped / len(self.readings), 3),
        }

    def _sample(self, nvml: Any, handle: Any) -> None:
        older = getattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None)
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", older)
        while not self._stop.is_set():
            try:
                now = time.monotonic()
                mhz = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
                watts = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
                celsius = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
                bits = reasons(handle) if reasons else 0
                self.readings.append(Reading(now, mhz, watts, celsius, bits))
            except nvml.NVMLError as error:
                self.note = f"NVML stopped answering: {error}"
                return
            self._stop.wait(self.period_s)


def throttled(samples: Sequence[Sample], readings: Sequence[Reading]) -> list[str]:
    """For every sample the reason that spoils it, or an empty string: of the readings during it,
    and of the last one before."""
    found = []
    for sample in samples:
        earlier = [r for r in readings if r.at <= sample.began][-1:]
        during = [r for r in readings if sample.began < r.at <= sample.ended]
        bits = functools.reduce(operator.or_, (r.reasons for r in earlier + during), 0)
        reasons = (name for bit, name in SPOILING_REASONS.items() if bits & bit)
        found.append(", ".join(reasons))
    return found
