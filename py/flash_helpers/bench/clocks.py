"""SM clock and power of the GPU while something runs. Reads only: clocks are never set."""

from __future__ import annotations

import statistics
import threading
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ClockSampler:
    """Samples in a thread while it is entered; `note` says why there are none.

    with ClockSampler() as clocks:
        ...
    clocks.summary()   # {"sm_mhz": 1785.0, "watts": 677.0}
    """

    device_index: int = 0
    period_s: float = 0.02
    note: str = ""
    _mhz: list[int] = field(default_factory=list)
    _watts: list[float] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> ClockSampler:
        try:
            import pynvml  # type: ignore[import-not-found]  # the package nvidia-ml-py
        except ImportError:
            self.note = "nvidia-ml-py is not installed: no clocks"
            return self
        try:
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(self.device_index)
        except pynvml.NVMLError as error:
            self.note = f"NVML refuses: {error}"
            return self
        self._thread = threading.Thread(target=self._sample, args=(pynvml, handle), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def summary(self) -> dict[str, float]:
        """Medians; empty if nothing was sampled."""
        if not self._mhz:
            return {}
        return {"sm_mhz": statistics.median(self._mhz), "watts": statistics.median(self._watts)}

    def _sample(self, nvml: Any, handle: Any) -> None:
        while not self._stop.is_set():
            try:
                self._mhz.append(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
                self._watts.append(nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
            except nvml.NVMLError as error:
                self.note = f"NVML stopped answering: {error}"
                return
            self._stop.wait(self.period_s)
