"""The measured curve: throughput of one kernel against the number of its blocks, beside what the
calibrated model (model.py) predicts."""

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flash_helpers.base.timing import Policy, Timer, interleaved

from .model import Calibrated, calibrate, calibration_blocks, differ

# The model is as good as the launches that calibrate it.
_CALIBRATE_TIMES = 4


@dataclass(frozen=True)
class Subject:
    """What is launched: `launch(blocks)` is a function that queues one launch of so many."""

    name: str
    sms: int
    blocks_per_sm: int
    launch: Callable[[int], Callable[[], object]]


@dataclass(frozen=True)
class Point:
    """Times in milliseconds (medians), efficiencies 0..1 of a GPU that is always full. Of the
    `predictions` (of wave_model.Calibrated) the nearer to what was measured counts: where they
    differ, the GPU does the one in one launch and the other in the next."""

    blocks: int
    samples: int
    measured_ms: float
    predictions_ms: tuple[float, float]
    measured: float
    predictions: tuple[float, float]

    @property
    def predicted_ms(self) -> float:
        return min(self.predictions_ms, key=lambda ms: abs(ms - self.measured_ms))

    @property
    def predicted(self) -> float:
        return self.predictions[self.predictions_ms.index(self.predicted_ms)]

    @property
    def is_open(self) -> bool:
        return differ(*self.predictions_ms)

    @property
    def deviation(self) -> float:
        """How far the prediction is off, relative to what was measured."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Curve:
    subject: str
    model: Calibrated
    points: tuple[Point, ...]

    @property
    def worst(self) -> Point:
        return max(self.points, key=lambda point: abs(point.deviation))

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary of plain values for every point."""
        return [
            {
                "subject": self.subject, "blocks": point.blocks, "samples": point.samples,
                "measured_ms": round(point.measured_ms, 6),
                "predicted_ms": round(point.predicted_ms, 6),
                "measured_efficiency": round(point.measured, 5),
                "predicted_efficiency": round(point.predicted, 5),
                "deviation_pct": round(100 * point.deviation, 3),
                "open": point.is_open,
            }
            for point in self.points
        ]  # fmt: skip

    def describe(self) -> str:
        model, worst = self.model.always, self.worst
        shared = ", ".join(f"{ms * 1e3:.1f}" for ms in model.block_ms)
        beyond = sum(abs(point.deviation) > 0.05 for point in self.points)
        return (
            f"{self.subject}: {model.sms} SMs, {model.blocks_per_sm} block(s) on each; a block "
            f"takes {shared} us (1.. on its SM), alone on the GPU {model.alone:.3f} of the first, "
            f"launch {model.overhead_ms * 1e3:.1f} us{self._refilling()}\n"
            f"  largest deviation of {len(self.points)} points: {worst.deviation:+.2%} at "
            f"{worst.blocks} blocks (measured {worst.measured:.3f}, predicted "
            f"{worst.predicted:.3f}); {beyond} points are off by more than 5 %"
        )

    def _refilling(self) -> str:
        low, high = self.model.always, self.model.at_times
        if low.blocks_per_sm == 1:
            return ""
        text = f"; of those that wait, {low.singles} get an SM of their own before one takes two"
        if low.singles == high.singles:
            return text
        number = sum(point.is_open for point in self.points)
        return (
            f"{text}, up to {high.singles} in some launches and not in others ({number} points, "
            "of which the nearer prediction counts)"
        )


def measure(
    subject: Subject, blocks: Sequence[int], repeats: int, timer: Timer, seed: int
) -> dict[int, list[float]]:
    """Milliseconds of `repeats` launches of each number of blocks, and of more of those that
    calibrate; all in random order, one launch at a time: neighbours on the curve share neither the
    clock nor the temperature of a moment."""
    calibrating = calibration_blocks(subject.sms, subject.blocks_per_sm)
    wanted = Counter({*blocks, *calibrating})
    wanted.update(calibrating * (_CALIBRATE_TIMES - 1))
    functions = {
        f"{n} blocks, {again}": subject.launch(n)
        for n, times in sorted(wanted.items())
        for again in range(times)
    }
    policy = Policy(warmups=1, repeats=repeats, cold_l2=False, burst=1)
    samples: dict[int, list[float]] = {n: [] for n in wanted}
    for name, taken in interleaved(functions, policy, timer, seed).items():
        samples[int(name.split()[0])] += [sample.ms for burst in taken for sample in burst]
    return samples


def curve(subject: Subject, blocks: Sequence[int], samples: Mapping[int, Sequence[float]]) -> Curve:
    """`samples` as `measure` returns them. Raises ValueError if they cannot calibrate."""
    # The lower median: where times are of two kinds, one of the times and not the mean of two.
    medians = {n: statistics.median_low(taken) for n, taken in samples.items()}
    model = calibrate(subject.sms, subject.blocks_per_sm, samples)
    efficiency = model.always.efficiency
    points = []
    for n in blocks:
        always, at_times = predicted = model.predict_ms(n)
        points.append(Point(
            n, len(samples[n]), medians[n], predicted, efficiency(n, medians[n]),
            (efficiency(n, always), efficiency(n, at_times)),
        ))  # fmt: skip
    return Curve(subject.name, model, tuple(points))
