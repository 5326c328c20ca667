"""How long a grid of equal blocks takes, from a few measured launches of the same kernel.

Assumptions: blocks do the same work; those of the first wave go to the SM with the fewest, one that
waits to the first free place; and how fast a block runs depends on two things alone, how many share
its SM and how many SMs are busy. Both are calibrated: the first with full first waves (one block on
each SM, two, up to as many as fit), the second with one block alone on the GPU, linearly in between
(a busy GPU has a lower clock and a contended L2 cache). A constant for the launch is added.

Blocks of one SM end together, so who gets the places that they leave is a matter of nanoseconds:
either an SM takes one block and the other SMs come before it takes the next, or it takes all that
fit. For the first so many waiting blocks it is the one, from a number on the other (`singles`), and
between the two it changes from launch to launch: launches of a wave and a bit more tell where.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

# Waves of the longest launch that calibrates: the slope between it and one wave is the time of a
# wave without the launch.
LONG_WAVES = 4
# Launches of one wave and 1/12, 2/12, ... of a block for every SM look for where an SM takes two.
_PROBES = 12
# A launch counts as of the one kind or the other where their times differ by more than that.
_TELLS = 0.02


@dataclass(frozen=True)
class WaveModel:
    """`block_ms[b - 1]`: time of a block where every SM has b. `alone`: the time of a single block
    on the whole GPU, relative to block_ms[0]. `singles`: so many blocks that waited for the end of
    a wave get an SM of their own before one SM takes two of them (sms: all that can)."""

    sms: int
    block_ms: tuple[float, ...]
    overhead_ms: float
    alone: float
    singles: int

    @property
    def blocks_per_sm(self) -> int:
        return len(self.block_ms)

    def predict_ms(self, blocks: int) -> float:
        """A launch's time, by playing it through: at every turn the blocks that end first end."""
        each, more = divmod(min(blocks, self.sms * self.blocks_per_sm), self.sms)
        sms = [[1.0] * (each + (sm < more)) for sm in range(self.sms)]
        waiting = blocks - sum(map(len, sms))
        elapsed = 0.0
        while any(sms):
            busy = sum(1 for left in sms if left)
            step = min(min(left) * self.time_ms(len(left), busy) for left in sms if left)
            elapsed += step
            ended: list[list[float]] = []
            for left in sms:
                if left and self._advance(left, step / self.time_ms(len(left), busy)):
                    ended.append(left)
            waiting -= self._refill(ended, waiting)
        return self.overhead_ms + elapsed

    def efficiency(self, blocks: int, milliseconds: float) -> float:
        """Blocks a second, relative to a GPU that is full all the time."""
        full = self.block_ms[-1] / (self.sms * self.blocks_per_sm)
        return blocks * full / milliseconds

    def time_ms(self, residents: int, busy: int) -> float:
        """Of a block, as long as `residents` share its SM and `busy` SMs have blocks."""
        share = (busy - 1) / max(1, self.sms - 1)
        return self.block_ms[residents - 1] * (self.alone + (1 - self.alone) * share)

    def _refill(self, sms: list[list[float]], waiting: int) -> int:
        """How many of the waiting blocks found a place where others ended."""
        # (blocks that are there when this place is taken, the SM)
        places = [(n, left) for left in sms for n in range(len(left), self.blocks_per_sm)]
        taken = places[:waiting]
        if waiting <= self.singles:
            taken = sorted(places, key=lambda place: place[0])[:waiting]
        for _, left in taken:
            left.append(1.0)
        return len(taken)

    @staticmethod
    def _advance(left: list[float], progress: float) -> bool:
        """`left`: what blocks of one SM still have to do, of 1. Whether some of them ended."""
        before = len(left)
        left[:] = [rest - progress for rest in left if rest - progress > 1e-9]
        return len(left) < before


@dataclass(frozen=True)
class Calibrated:
    """Two models that differ in `singles` alone: what every launch that calibrated kept to, and
    what at least one did. Between the two the GPU takes one order in one launch and the other in
    the next."""

    always: WaveModel
    at_times: WaveModel

    def predict_ms(self, blocks: int) -> tuple[float, float]:
        """By one and by the other; mostly the same."""
        return self.always.predict_ms(blocks), self.at_times.predict_ms(blocks)


def _probes(sms: int, blocks_per_sm: int) -> list[int]:
    """Numbers of blocks: a wave, and up to one block for every SM."""
    if blocks_per_sm == 1:
        return []
    return [blocks_per_sm * sms + -(-sms * part // _PROBES) for part in range(1, _PROBES + 1)]


def calibration_blocks(sms: int, blocks_per_sm: int) -> list[int]:
    """The launches that `calibrate` needs."""
    waves = [b * sms for b in range(1, blocks_per_sm + 1)]
    return [1, *waves, *_probes(sms, blocks_per_sm), LONG_WAVES * blocks_per_sm * sms]


def calibrate(
    sms: int, blocks_per_sm: int, samples_ms: Mapping[int, Sequence[float]]
) -> Calibrated:
    """`samples_ms`: milliseconds of launches by their blocks, at least calibration_blocks. Raises
    ValueError for times that cannot be: a long launch no longer than a short one."""
    wanted = calibration_blocks(sms, blocks_per_sm)
    measured_ms = {n: statistics.median_low(samples_ms[n]) for n in wanted}
    first, long = blocks_per_sm * sms, LONG_WAVES * blocks_per_sm * sms
    wave = (measured_ms[long] - measured_ms[first]) / (LONG_WAVES - 1)
    if wave <= 0:
        raise ValueError(
            f"{long} blocks took {measured_ms[long]:.4f} ms and {first} {measured_ms[first]:.4f}: "
            "nothing can be predicted from that"
        )
    overhead = max(0.0, measured_ms[first] - wave)
    block_ms = [measured_ms[b * sms] - overhead for b in range(1, blocks_per_sm)] + [wave]
    if min(block_ms) <= 0:
        raise ValueError(f"a wave takes {wave:.4f} ms, and less than nothing is left of a shorter")
    alone = (measured_ms[1] - overhead) / block_ms[0]
    model = WaveModel(sms, tuple(block_ms), overhead, alone, singles=sms)
    return with_singles(model, samples_ms)


def with_singles(model: WaveModel, samples_ms: Mapping[int, Sequence[float]]) -> Calibrated:
    """`always`: the last of the probes of which every launch gave each SM one block; `at_times`:
    the last number before those of which none did."""
    if model.blocks_per_sm == 1:
        return Calibrated(model, model)
    packed = replace(model, singles=0)
    kept: dict[int, list[bool]] = {}
    for n in _probes(model.sms, model.blocks_per_sm):
        apart, together = model.predict_ms(n), packed.predict_ms(n)
        same = not differ(apart, together)
        waiting = n - model.sms * model.blocks_per_sm
        kept[waiting] = [same or abs(ms - apart) <= abs(ms - together) for ms in samples_ms[n]]
    all_kept = list(takewhile(lambda waiting: all(kept[waiting]), kept))
    none_kept = list(takewhile(lambda waiting: not any(kept[waiting]), reversed(kept)))
    always = all_kept[-1] if all_kept else 0
    at_times = none_kept[-1] - 1 if none_kept else model.sms
    return Calibrated(replace(model, singles=always), replace(model, singles=at_times))


def differ(a: float, b: float) -> bool:
    """Whether a launch tells two predictions apart."""
    return abs(a - b) > _TELLS * max(a, b)
