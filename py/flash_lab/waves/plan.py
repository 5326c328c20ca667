"""How many waves of blocks a launch is, and what its last one loses.

An SM holds `blocks_per_sm` blocks at a time, so the GPU runs a grid in waves of
sms x blocks_per_sm blocks. If the last wave is not full, SMs stand idle until it ends.
"""

from dataclasses import dataclass

# The usual advice: with four blocks or more for every SM the last wave weighs little.
RULE_BLOCKS_PER_SM = 4
# The share of the time: a last wave that wastes less is not worth a warning.
WASTEFUL = 0.10


@dataclass(frozen=True)
class WavePlan:
    """The waves of a launch whose blocks all take the same time."""

    blocks: int
    sms: int
    blocks_per_sm: int

    @property
    def slots(self) -> int:
        """Blocks of a full wave."""
        return self.sms * self.blocks_per_sm

    @property
    def waves(self) -> int:
        """The last one counted whole."""
        return -(-self.blocks // self.slots)

    @property
    def tail(self) -> int:
        """Blocks in the last wave, 1..slots."""
        return (self.blocks - 1) % self.slots + 1

    @property
    def efficiency(self) -> float:
        """Part of the GPU's slots in use, 0..1: the share of its speed if a block takes as long
        alone on an SM as beside others. True for blocks that wait more than they compute."""
        return self.blocks / (self.waves * self.slots)

    @property
    def shared_efficiency(self) -> float:
        """The same if one block alone has the whole SM busy, so that only SMs without any block
        lose. True for blocks that keep an SM's pipes full; never below `efficiency`."""
        return self.blocks / (self.sms * -(-self.blocks // self.sms))

    @property
    def tail_loss(self) -> float:
        """Part of the time lost at least, whatever the blocks do."""
        return 1 - self.shared_efficiency

    @property
    def follows_rule(self) -> bool:
        return self.blocks >= RULE_BLOCKS_PER_SM * self.sms

    @property
    def wastes_its_last_wave(self) -> bool:
        return self.tail_loss >= WASTEFUL

    def describe(self) -> str:
        """Two sentences or three."""
        text = (
            f"{self.blocks} blocks on {self.sms} SMs x {self.blocks_per_sm} = "
            f"{self.blocks / self.slots:.2f} waves ({self.waves} of {self.slots} blocks, "
            f"{self.tail} in the last). "
        )
        low, high = self.efficiency, self.shared_efficiency
        span = f"{high:.0%}" if f"{low:.0%}" == f"{high:.0%}" else f"{low:.0%} to {high:.0%}"
        text += f"Predicted efficiency {span}."
        if not self.follows_rule:
            text += f" {self.advice()}"
        return text

    def advice(self) -> str:
        wanted = RULE_BLOCKS_PER_SM * self.sms
        return (
            f"The rule of thumb asks for {wanted} blocks or more ({RULE_BLOCKS_PER_SM} for each "
            "SM), so that the last wave weighs little."
        )

    def warning(self) -> str:
        """Empty unless the last wave wastes WASTEFUL of the time or more."""
        if not self.wastes_its_last_wave:
            return ""
        idle = self.sms - ((self.blocks - 1) % self.sms + 1)
        better = self.blocks // self.sms * self.sms
        hint = f"{better} or {better + self.sms} blocks would fill it" if better else (
            f"{self.sms} blocks would give each SM one"
        )  # fmt: skip
        return (
            f"its last wave leaves {idle} of {self.sms} SMs idle: {self.tail_loss:.0%} of the time "
            f"is lost with {self.blocks} blocks; {hint}"
        )


def plan(blocks: int, sms: int, blocks_per_sm: int = 1) -> WavePlan:
    """Raises ValueError for numbers below 1."""
    for name, value in (("blocks", blocks), ("sms", sms), ("blocks_per_sm", blocks_per_sm)):
        if value < 1:
            raise ValueError(f"{name} is {value}: it must be at least 1")
    return WavePlan(blocks, sms, blocks_per_sm)
