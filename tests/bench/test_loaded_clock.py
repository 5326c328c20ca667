"""The clock under load: the arithmetic, and the choreography on a simulated GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch

from flash_lab.bench.loaded_clock import LoadedClock, clock_between


def test_the_idle_part_is_taken_off() -> None:
    """0.1 ms at 1950 MHz before the kernel, then 0.25 ms at 1780."""
    cycles = 195_000 + 445_000
    assert clock_between(cycles, 1950, 0.02, 0.12, 0.37) == pytest.approx(1780)


@pytest.mark.parametrize(
    ("cycles", "begun", "kernel", "ended"),
    [(100_000, 0.0, 0.1, 0.2), (500_000, 0.0, 0.2, 0.2), (9_000_000, 0.0, 0.1, 0.2)],
    ids=["ended before the kernel began", "no time left", "faster than any GPU"],
)
def test_what_makes_no_sense_is_not_known(
    cycles: float, begun: float, kernel: float, ended: float
) -> None:
    assert clock_between(cycles, 1950, begun, kernel, ended) is None


class Stream:
    """`now`: when what was queued so far is done, in milliseconds."""

    def __init__(self, device: object = None) -> None:
        self.now = 0.0

    def wait_event(self, event: Any) -> None:
        self.now = max(self.now, event.at)

    def __enter__(self) -> None:
        Gpu.current.append(self)

    def __exit__(self, *_: object) -> None:
        Gpu.current.pop()


class Gpu:
    """A launch takes 3 us. The clock is `idle` but while a kernel runs; a thread that counts on the
    side stream lives through both. Cycles per millisecond."""

    idle, loaded, launch_ms, head = 1950e3, 1780e3, 0.003, 200_000
    main = Stream()
    current: ClassVar[list[Stream]] = [main]

    @classmethod
    def sleep(cls, cycles: int) -> None:
        stream = cls.current[-1]
        began = stream.now + cls.launch_ms
        if stream is cls.main:
            stream.now = began + cycles / cls.idle
            return
        kernel = cls.main.now + 2 * cls.launch_ms + cls.head / cls.idle
        left = cycles - (kernel - began) * cls.idle
        stream.now = kernel + left / cls.loaded

    @classmethod
    def kernel(cls, ms: float) -> Callable[[], None]:
        def function() -> None:
            cls.main.now += cls.launch_ms + ms

        return function


class Event:
    def __init__(self, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = Gpu.current[-1].now

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: Event) -> float:
        return other.at - self.at


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.cuda, "_sleep", Gpu.sleep)


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize(("ms", "within"), [(0.1, 0.01), (0.36, 0.005), (5.4, 0.001)])
def test_a_clock_that_drops_under_the_kernel_is_found(ms: float, within: float) -> None:
    found = LoadedClock(torch.device("cuda")).mhz(Gpu.kernel(ms), ms + Gpu.launch_ms)
    assert found == pytest.approx(1780, rel=within)


@pytest.mark.usefixtures("simulated")
def test_a_kernel_that_ends_before_the_counting_is_not_known() -> None:
    assert LoadedClock(torch.device("cuda")).mhz(Gpu.kernel(0.5), 2.0) is None
