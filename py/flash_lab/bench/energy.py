"""Energy of a call, from the counter that NVML keeps: millijoules since the driver was loaded."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flash_helpers.base.lazy import torch

from .clocks import open_nvml

# The counter moves in steps (about every 20 to 100 ms), so what is counted lies between two of
# them. One step more than that tells that it moves at all.
_LEAST_STEPS = 3
_PATIENCE = 4  # times as long as was asked for, where the counter is slow
# Between two looks at the counter: short beside its steps, and longer than a look, for which an
# H200's driver takes 4 ms.
_BATCH_MS = 10.0


class EnergyError(RuntimeError):
    """There is no energy to be had; the message says why."""


@dataclass(frozen=True)
class Energy:
    """`joules` of one call; of `n_calls` calls in `seconds`, at so many steps of the counter."""

    joules: float
    n_calls: int
    seconds: float
    n_steps: int

    @property
    def watts(self) -> float:
        return self.joules * self.n_calls / self.seconds


def cuda_mark() -> Callable[[], object]:
    """Waits for what PyTorch's stream holds now."""
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event.synchronize


class EnergyMeter:
    """Of one GPU. `mark` gives a function that waits for all that was queued before `mark`."""

    def __init__(
        self, uuid: str, mark: Callable[[], Callable[[], object]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._mark, self._clock = mark, clock
        self._nvml, self._handle, problem = open_nvml(uuid)
        if problem:
            raise EnergyError(problem)

    def per_call(self, function: Callable[[], object], call_ms: float, seconds: float) -> Energy:
        """Calls `function` (which takes `call_ms`) again and again for so long, on warm caches.
        Raises EnergyError."""
        n_batch = max(1, round(_BATCH_MS / call_ms))

        def queue_batch() -> Callable[[], object]:
            for _ in range(n_batch):
                function()
            return self._mark()

        n_calls, steps = 0, [(0.0, self._millijoules(), 0)]
        began, wait = self._clock(), queue_batch()
        while True:
            following = queue_batch()  # runs while the counter is read: nothing idle is counted
            wait()
            wait, n_calls = following, n_calls + n_batch
            now, millijoules = self._clock(), self._millijoules()
            if millijoules != steps[-1][1]:
                steps.append((now, millijoules, n_calls))
            elapsed = now - began
            if elapsed >= seconds and len(steps) > _LEAST_STEPS:
                break
            if elapsed >= _PATIENCE * seconds:
                raise EnergyError(
                    f"the energy counter moved {len(steps) - 1} times in {elapsed:.2f} s: at least "
                    f"{_LEAST_STEPS} are needed"
                )
        wait()
        # From step to step: where the first one began is not known.
        (t0, e0, n0), (t1, e1, n1) = steps[1], steps[-1]
        if e1 <= e0:
            raise EnergyError(f"the energy counter ran backwards, from {e0} to {e1} mJ")
        return Energy((e1 - e0) / 1000 / (n1 - n0), n1 - n0, t1 - t0, len(steps) - 1)

    def _millijoules(self) -> int:
        nvml: Any = self._nvml
        try:
            return int(nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        except nvml.NVMLError as error:
            raise EnergyError(f"NVML gives no energy of this GPU: {error}") from None
