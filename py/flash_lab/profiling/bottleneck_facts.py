"""The figures that `bottleneck.explain` decides by, their limits, and the lines that show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from . import bottleneck_metrics as m

# Per cent of a unit's peak. No program has all of it: a plain copy on an H200 moves 4.3 of 4.8 TB/s
# (90 %), a large matmul keeps the tensor cores busy for about 80 %. 60 % is two thirds of what can
# be had; below it, more is lost between the instructions than in the unit.
BUSY = 60.0
# The share of shared memory's turns that are replays: without them it would serve 1.5 times as
# much.
CONFLICT_SHARE = 1 / 3
# Spilling: the part of local memory in the sectors that pass L1, and in all warps' instructions.
# A kernel that spills outside its main loop stays far below both.
LOCAL_SECTOR_SHARE = 1 / 3
LOCAL_INSTRUCTION_SHARE = 0.05
# Per cent of the warps an SM can hold: 16 of 64, four for each scheduler. They cover the latency of
# arithmetic (4 to 6 cycles), but of shared memory (about 30) or of L2 (about 250) only a part.
FEW_WARPS = 25.0
# Per cent of its peak from which the busiest unit is named although it is not the limit: what waits
# for it, or for its operands, is then the better part of the story.
NEAR = 30.0
# Per cent of the peak of device memory, beyond which there is little more to be had.
NEARLY_ALL = 80.0


@dataclass(frozen=True)
class Facts:
    """Shares are 0..1, the rest per cent. The pipes of the SMs are over the whole time, too."""

    metrics: Mapping[str, float]
    dram: float
    l2: float
    lsu: float
    tensor: float
    issue: float
    sm_busy: float
    local_sector_share: float
    local_instruction_share: float

    @classmethod
    def of(cls, metrics: Mapping[str, float]) -> Facts:
        local = sum(metrics[name] for name in m.LOCAL_SECTORS)
        sectors = local + sum(metrics[name] for name in m.GLOBAL_SECTORS)
        requests = sum(metrics[name] for name in m.LOCAL_REQUESTS)
        busy = min(metrics[m.SM_BUSY], 100.0) / 100
        return cls(
            metrics, metrics[m.DRAM], metrics[m.L2], metrics[m.LSU_DATA],
            metrics[m.TENSOR] * busy, metrics[m.ISSUE] * busy, 100 * busy,
            share(local, sectors), share(requests, metrics[m.INSTRUCTIONS]),
        )  # fmt: skip

    @property
    def spills(self) -> bool:
        return (
            self.local_sector_share >= LOCAL_SECTOR_SHARE
            and self.local_instruction_share >= LOCAL_INSTRUCTION_SHARE
        )

    @property
    def shared(self) -> float:
        """This and the next two raise MetricError without bottleneck_metrics.FOR_SHARED."""
        m.check(self.metrics, m.FOR_SHARED)
        return self.metrics[m.SHARED_DATA]

    @property
    def conflict_share(self) -> float:
        m.check(self.metrics, m.FOR_SHARED)
        return share(self.metrics[m.CONFLICTS], self.metrics[m.SHARED_WAVEFRONTS])

    @property
    def conflicts(self) -> bool:
        """Whether bank conflicts are what fills the data pipe."""
        return self.shared >= self.lsu / 2 and self.conflict_share >= CONFLICT_SHARE


def share(part: float, whole: float) -> float:
    return min(part / whole, 1.0) if whole > 0 else 0.0


def line(what: str, value: float, metric: str, limit: str = "") -> str:
    return f"{what}: {value:.1f} % ({metric}{'; ' + limit if limit else ''})"


BUSY_FROM = f"busy from {BUSY:.0f} %"


def dram_line(facts: Facts) -> str:
    return line("device memory, of its peak", facts.dram, m.DRAM, BUSY_FROM)


def shared_line(facts: Facts) -> str:
    return line("data pipe of L1 and shared memory, of its peak", facts.lsu, m.LSU_DATA, BUSY_FROM)


def tensor_line(facts: Facts) -> str:
    return line("tensor cores, of the cycles", facts.tensor, m.TENSOR, BUSY_FROM)


def issue_line(facts: Facts) -> str:
    return line("cycles in which a scheduler issues", facts.issue, m.ISSUE, BUSY_FROM)


def occupancy_lines(facts: Facts) -> list[str]:
    most, had = facts.metrics[m.MAX_OCCUPANCY], facts.metrics[m.OCCUPANCY]
    few = f"few up to {FEW_WARPS:.0f} %"
    return [
        line("warps that the launch allows, of what an SM holds", most, m.MAX_OCCUPANCY, few),
        line("warps that there were", had, m.OCCUPANCY),
    ]


def stall_lines(facts: Facts, count: int = 2) -> list[str]:
    found = {what: facts.metrics[name] for what, name in m.STALLS.items() if name in facts.metrics}
    first = sorted(found, key=lambda what: -found[what])[:count]
    return [
        f"warps that wait for {what}: {found[what]:.1f} per issued instruction ({m.STALLS[what]})"
        for what in first
        if found[what] > 0
    ]
