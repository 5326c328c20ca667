"""How long a grid of equal blocks takes, from a few measured launches of the same kernel.

Assumptions: blocks do the same work; those of the first wave go to the SM with the fewest, one that
waits to the first free place; and how fast a block runs depends on two things alone, how many share
its SM and how many SMs are busy. Both are calibrated: the first with full first waves (one block on
each SM, two, up to as many as fit), the second with one block alone on the GPU, linearly in between
(a busy GPU has a lower clock and a contended L2 cache). A constant for the launch is added.

Blocks of one SM end together, so who gets the places that they leave is a matter of nanoseconds:
either each SM takes one block, then the next (`evenly`), or an SM all that fit into it. A launch of
one wave and one block for every SM tells which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Waves of the longest launch that calibrates: the slope between it and one wave is the time of a
# wave without the launch.
LONG_WAVES = 4


@dataclass(frozen=True)
class WaveModel:
    """`block_ms[b - 1]`: time of a block where every SM has b. `alone`: the time of a single block
    on the whole GPU, relative to block_ms[0]."""

    sms: int
    block_ms: tuple[float, ...]
    overhead_ms: float
    alone: float
    evenly: bool = True

    @property
    def blocks_per_sm(self) -> int:
        return len(self.block_ms)

    def predict_ms(self, blocks: int) -> float:
        """Of a launch, by playing it through: at every turn the blocks that end first end."""
        sms = _placed(min(blocks, self.sms * self.blocks_per_sm), self.sms)
        waiting = blocks - sum(map(len, sms))
        elapsed = 0.0
        while any(sms):
            busy = sum(1 for left in sms if left)
            step = min(min(left) * self._time(len(left), busy) for left in sms if left)
            elapsed += step
            ended: list[list[float]] = []
            for left in sms:
                if left and self._advance(left, step / self._time(len(left), busy)):
                    ended.append(left)
            waiting -= self._refill(ended, waiting)
        return self.overhead_ms + elapsed

    def efficiency(self, blocks: int, milliseconds: float) -> float:
        """Blocks a second, relative to a GPU that is full all the time."""
        full = self.block_ms[-1] / (self.sms * self.blocks_per_sm)
        return blocks * full / milliseconds

    def _time(self, residents: int, busy: int) -> float:
        """Of a block, as long as `residents` share its SM and `busy` SMs have blocks."""
        share = (busy - 1) / max(1, self.sms - 1)
        return self.block_ms[residents - 1] * (self.alone + (1 - self.alone) * share)

    def _refill(self, sms: list[list[float]], waiting: int) -> int:
        """How many of the waiting blocks found a place where others ended."""
        # (blocks that are there when this place is taken, the SM)
        places = [(n, left) for left in sms for n in range(len(left), self.blocks_per_sm)]
        if self.evenly:
            places.sort(key=lambda place: place[0])
        for _, left in places[:waiting]:
            left.append(1.0)
        return min(waiting, len(places))

    @staticmethod
    def _advance(left: list[float], progress: float) -> bool:
        """`left`: what blocks of one SM still have to do, of 1. Whether some of them ended."""
        before = len(left)
        left[:] = [rest - progress for rest in left if rest - progress > 1e-9]
        return len(left) < before


def _placed(blocks: int, sms: int) -> list[list[float]]:
    return [[1.0] * (blocks // sms + (sm < blocks % sms)) for sm in range(sms)]


def calibration_blocks(sms: int, blocks_per_sm: int) -> list[int]:
    """The launches that `calibrate` needs."""
    waves = [b * sms for b in range(1, blocks_per_sm + 2)]  # the last: a wave, and one for each SM
    return [1, *waves, LONG_WAVES * blocks_per_sm * sms]


def calibrate(sms: int, blocks_per_sm: int, measured_ms: Mapping[int, float]) -> WaveModel:
    """`measured_ms`: milliseconds of launches by their blocks, at least calibration_blocks. Raises
    ValueError for times that cannot be: a long launch no longer than a short one."""
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
    models = [WaveModel(sms, tuple(block_ms), overhead, alone, evenly) for evenly in (True, False)]
    tells = (blocks_per_sm + 1) * sms
    return min(models, key=lambda model: abs(model.predict_ms(tells) - measured_ms[tells]))
