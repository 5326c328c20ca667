"""How an operator's speed depends on its shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from flash_attention.triton_kit.op import Work
from flash_helpers.base.timing import Timer

from ..bench.energy import EnergyError, EnergyMeter
from .benchmark import Call, benchmark_kernel

_AS_GOOD = 0.98  # of the highest throughput: what a larger shape adds is noise


@dataclass(frozen=True)
class Point:
    """`ms`: the median. `gops_per_watt` is None where no power can be read; `note` says why."""

    shape: tuple[int, ...]
    ms: float
    work: Work
    samples_ms: tuple[float, ...] = ()
    gops_per_watt: float | None = None
    note: str = ""

    @property
    def gflops(self) -> float:
        """10^9 floating-point operations per second."""
        return self.work.flop / self.ms / 1e6

    @property
    def gb_s(self) -> float:
        """Effective bandwidth: the bytes that have to move over the time, in 10^9 per second."""
        return self.work.n_bytes / self.ms / 1e6

    @property
    def speed(self) -> float:
        """In 10^9 operations per second, or bytes where no operation is counted."""
        return self.gflops if self.work.flop else self.gb_s


def sensitivity(
    jobs: Iterable[tuple[tuple[int, ...], Call, Work]], *, timer: Timer | None = None,
    meter: EnergyMeter | None = None, seconds: float = 0.5,
) -> list[Point]:  # fmt: skip
    """The curve over shapes, of each a call and what it costs: measured by benchmark_kernel, and
    with `meter` for so many seconds its energy. Raises as benchmark_kernel."""
    points = []
    for shape, call, work in jobs:
        times = benchmark_kernel(call, timer=timer)
        point = Point(shape, times["p50"], work, tuple(times["samples_ms"]))
        if meter is not None:
            try:
                joules = meter.per_call(call, point.ms, seconds).joules
                point = replace(point, gops_per_watt=work.flop / 1e9 / joules)
            except EnergyError as error:
                point = replace(point, note=str(error))
        points.append(point)
    return points


def best_working_point(points: Sequence[Point]) -> Point:
    """The smallest problem that runs within 2 % of the highest throughput: of operations, or of
    bytes where none is counted. Raises ValueError without points."""
    if not points:
        raise ValueError("there is no best working point: nothing was measured")
    speeds = [point.speed for point in points]
    good = [p for p, speed in zip(points, speeds, strict=True) if speed >= _AS_GOOD * max(speeds)]
    return min(good, key=lambda point: (point.work.n_bytes, point.ms))
