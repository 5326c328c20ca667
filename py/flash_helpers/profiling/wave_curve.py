"""The measured curve: throughput of one kernel against the number of its blocks, beside what the
calibrated model (wave_model.py) predicts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..bench.timing import Policy, Timer, interleaved
from .wave_model import WaveModel, calibrate, calibration_blocks


@dataclass(frozen=True)
class Subject:
    """What is launched: `launch(blocks)` is a function that queues one launch of so many."""

    name: str
    sms: int
    blocks_per_sm: int
    launch: Callable[[int], Callable[[], object]]


@dataclass(frozen=True)
class Point:
    """Times in milliseconds (medians), efficiencies 0..1 of a GPU that is always full."""

    blocks: int
    samples: int
    measured_ms: float
    predicted_ms: float
    measured: float
    predicted: float

    @property
    def deviation(self) -> float:
        """Of the prediction, relative to what was measured."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Curve:
    subject: str
    model: WaveModel
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
            }
            for point in self.points
        ]  # fmt: skip

    def describe(self) -> str:
        model, worst = self.model, self.worst
        shared = ", ".join(f"{ms * 1e3:.1f}" for ms in model.block_ms)
        beyond = sum(abs(point.deviation) > 0.05 for point in self.points)
        return (
            f"{self.subject}: {model.sms} SMs, {model.blocks_per_sm} block(s) on each; a block "
            f"takes {shared} us (1.. on its SM), alone on the GPU {model.alone:.3f} of the first, "
            f"launch {model.overhead_ms * 1e3:.1f} us, places are refilled "
            f"{'evenly' if model.evenly else 'SM by SM'}\n"
            f"  largest deviation of {len(self.points)} points: {worst.deviation:+.2%} at "
            f"{worst.blocks} blocks (measured {worst.measured:.3f}, predicted "
            f"{worst.predicted:.3f}); {beyond} points are off by more than 5 %"
        )


def measure(
    subject: Subject, blocks: Sequence[int], repeats: int, timer: Timer, seed: int
) -> dict[int, list[float]]:
    """Milliseconds of `repeats` launches of each number of blocks, all in random order, one launch
    at a time: neighbours on the curve share neither the clock nor the temperature of a moment."""
    wanted = sorted({*blocks, *calibration_blocks(subject.sms, subject.blocks_per_sm)})
    functions = {str(n): subject.launch(n) for n in wanted}
    policy = Policy(warmups=1, repeats=repeats, cold_l2=False, burst=1)
    bursts = interleaved(functions, policy, timer, seed)
    return {
        int(n): [sample.ms for burst in taken for sample in burst] for n, taken in bursts.items()
    }


def curve(subject: Subject, blocks: Sequence[int], samples: Mapping[int, Sequence[float]]) -> Curve:
    """`samples` as `measure` returns them. Raises ValueError if they cannot calibrate."""
    medians = {n: statistics.median(taken) for n, taken in samples.items()}
    model = calibrate(subject.sms, subject.blocks_per_sm, medians)
    points = []
    for n in blocks:
        predicted_ms = model.predict_ms(n)
        points.append(Point(
            n, len(samples[n]), medians[n], predicted_ms,
            model.efficiency(n, medians[n]), model.efficiency(n, predicted_ms),
        ))  # fmt: skip
    return Curve(subject.name, model, tuple(points))
