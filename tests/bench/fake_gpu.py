"""A GPU whose clock only waiting and reading advance, and the NVML that counts its energy."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace


class NVMLError(Exception):
    pass


class FakeGpu:
    """A clock that waiting and reading advance, and a counter that is brought up to date every
    `step_s`. Without work the power is 80 W, and a look takes 4 ms, as on an H200."""

    LOOK_S = 0.004

    def __init__(
        self, watts: float = 600.0, step_s: float = 0.05, refuses: str = "",
        handle: str = "handle of GPU-1",
    ) -> None:  # fmt: skip
        self.now, self.watts, self.step_s, self.refuses = 1000.013, watts, step_s, refuses
        self.handle = handle
        self.began = self.busy_until = self.now
        self.idle: list[tuple[float, float]] = []

    def call(self, ms: float) -> Callable[[], None]:
        def function() -> None:
            if self.now > self.busy_until:
                self.idle.append((self.busy_until, self.now))
            self.busy_until = max(self.now, self.busy_until) + ms / 1000

        return function

    def mark(self) -> Callable[[], None]:
        end = self.busy_until

        def wait() -> None:
            self.now = max(self.now, end)

        return wait

    def joules(self) -> float:
        """Until the counter's last step."""
        now = max(self.began, int(self.now / self.step_s) * self.step_s)
        idle = [*self.idle, (self.busy_until, now)]
        idle_s = sum(max(0.0, min(end, now) - start) for start, end in idle)
        return self.watts * (now - self.began - idle_s) + min(80.0, self.watts) * idle_s

    def module(self) -> SimpleNamespace:
        def energy(handle: str) -> int:
            assert handle == self.handle
            if self.refuses:
                raise NVMLError(self.refuses)
            self.now += self.LOOK_S
            return int(self.joules() * 1000)

        def by_uuid(uuid: str) -> str:
            if uuid == "GPU-none":
                raise NVMLError("Not Found")
            return f"handle of {uuid}"

        return SimpleNamespace(
            NVMLError=NVMLError, nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=by_uuid,
            nvmlDeviceGetHandleByIndex=lambda index: f"handle of {index}",
            nvmlDeviceGetTotalEnergyConsumption=energy,
        )  # fmt: skip
