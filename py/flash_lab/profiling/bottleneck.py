"""What limits a kernel, told from the counters of Nsight Compute.

    finding = explain(values_of(launch))
    finding.name        # "bank-conflicts"
    finding.paragraph   # what that means here, in sentences
    finding.evidence    # the counters that decided, one line each

First the busiest unit: what keeps the kernel from being faster is a unit that has no more to give.
Then the cause: what fills that unit (useful data, replays of bank conflicts, spilled registers).
Where no unit is busy, the kernel waits: for SMs without blocks, for too few warps, or for latency.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from . import bottleneck_facts as f
from . import bottleneck_metrics as m

MEMORY, CACHE, SHARED, CONFLICTS = "memory-bound", "cache-bound", "shared-memory", "bank-conflicts"
SPILLING, TENSOR, ISSUE = "spilling", "tensor-bound", "issue-bound"
SMALL_GRID, LOW_OCCUPANCY, LATENCY = "small-grid", "low-occupancy", "latency-bound"
NAMES = (
    MEMORY, CACHE, SHARED, CONFLICTS, SPILLING, TENSOR, ISSUE, SMALL_GRID, LOW_OCCUPANCY, LATENCY,
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """`name`: one of NAMES. `evidence`: the figures that decided it, the most important first."""

    name: str
    paragraph: str
    evidence: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.name}: {self.paragraph}", *(f"  {e}" for e in self.evidence)])


def explain(metrics: Mapping[str, float]) -> Finding:
    """`metrics`: values of one launch by ncu's names, in base units (per cent, counts), at least
    bottleneck_metrics.REQUIRED, and FOR_SHARED if shared memory is the busiest unit. Raises
    MetricError if one of them is absent or no sensible number."""
    m.check(metrics)
    facts = f.Facts.of(metrics)
    units = {
        MEMORY: facts.dram, CACHE: facts.l2, SHARED: facts.lsu, TENSOR: facts.tensor,
        ISSUE: facts.issue,
    }  # fmt: skip
    busiest = max(units, key=lambda name: units[name])
    if busiest == CACHE and facts.dram >= f.BUSY:
        busiest = MEMORY  # what crosses device memory passes L2, too
    if units[busiest] < f.BUSY:
        return _waiting(facts, busiest, units[busiest])
    if busiest != TENSOR and facts.spills:
        return _spilling(facts)
    if busiest == SHARED:
        return _shared(facts)
    return {MEMORY: _memory, CACHE: _cache, TENSOR: _tensor, ISSUE: _issue}[busiest](facts)


def _memory(facts: f.Facts) -> Finding:
    all_of_it = ", about all that can be had" if facts.dram >= f.NEARLY_ALL else ""
    text = (
        f"Device memory is at {facts.dram:.0f} % of its peak{all_of_it}: the kernel is as fast as "
        "its bytes. It becomes faster by moving fewer of them (keep data in registers or shared "
        "memory, fuse with the neighbouring kernels, smaller types), not by computing faster."
    )
    return Finding(MEMORY, text, (f.dram_line(facts), f.issue_line(facts), f.tensor_line(facts)))


def _cache(facts: f.Facts) -> Finding:
    text = (
        f"The L2 cache is at {facts.l2:.0f} % of its peak while device memory is at "
        f"{facts.dram:.0f} %: the same data is fetched again and again. Larger tiles, or sharing "
        "what neighbouring blocks load (clusters with multicast), take traffic off it."
    )
    line = f.line("L2 cache, of its peak", facts.l2, m.L2, f.BUSY_FROM)
    return Finding(CACHE, text, (line, f.dram_line(facts)))


def _shared(facts: f.Facts) -> Finding:
    lines = [f.shared_line(facts)]
    if facts.conflicts:
        text = (
            f"Shared memory is the busiest unit, and {facts.conflict_share:.0%} of its turns are "
            "replays of bank conflicts: lanes of one warp want different words of the same bank. A "
            "swizzled or padded layout removes them, and the same accesses take about "
            f"{1 - facts.conflict_share:.0%} of the turns."
        )
        line = f.line(
            "turns of shared memory that are replays of bank conflicts",
            100 * facts.conflict_share, f"{m.CONFLICTS} / {m.SHARED_WAVEFRONTS}",
            f"many from {f.CONFLICT_SHARE:.0%}",
        )  # fmt: skip
        return Finding(CONFLICTS, text, (line, *lines, *f.stall_lines(facts, 1)))
    text = (
        f"The data pipe of L1 and shared memory is at {facts.lsu:.0f} % of its peak, and not for "
        f"bank conflicts ({facts.conflict_share:.0%} of the turns of shared memory). Keep more in "
        "registers, load wider, or let the tensor cores read shared memory themselves (wgmma)."
    )
    line = f.line("shared memory's part of it", facts.shared, m.SHARED_DATA)
    return Finding(SHARED, text, (*lines, line))


def _spilling(facts: f.Facts) -> Finding:
    registers = facts.metrics.get(m.REGISTERS)
    has = f" (it has {registers:.0f} registers a thread)" if registers else ""
    text = (
        f"The kernel works in local memory{has}: {facts.local_instruction_share:.0%} of its "
        f"instructions, and {facts.local_sector_share:.0%} of what passes L1. That is spilled "
        "registers, or an array whose indices the compiler does not know. Allow it more registers "
        "(fewer threads a block, __launch_bounds__ with fewer blocks), or let each thread hold "
        "less."
    )
    lines = (
        f.line(
            "local memory, of the sectors through L1", 100 * facts.local_sector_share,
            f"{m.LOCAL_SECTORS[0]} and _st, with those of global memory",
            f"many from {f.LOCAL_SECTOR_SHARE:.0%}",
        ),
        f.line(
            "loads and stores of local memory, of the instructions",
            100 * facts.local_instruction_share, f"{m.LOCAL_REQUESTS[0]} and _st",
            f"many from {f.LOCAL_INSTRUCTION_SHARE:.0%}",
        ),
        f.shared_line(facts),
    )  # fmt: skip
    return Finding(SPILLING, text, (*lines, *f.stall_lines(facts, 1)))


def _tensor(facts: f.Facts) -> Finding:
    text = (
        f"The tensor cores are busy for {facts.tensor:.0f} % of the time: the kernel is as fast as "
        "its multiplications. What is left is the rest to 100 % (better overlap with everything "
        "else), fewer operations (skip masked blocks), smaller types, or a higher clock."
    )
    return Finding(TENSOR, text, (f.tensor_line(facts), f.dram_line(facts), f.shared_line(facts)))


def _issue(facts: f.Facts) -> Finding:
    text = (
        f"The schedulers issue in {facts.issue:.0f} % of their cycles: the kernel is as fast as "
        "the number of its instructions. Fewer of them (wider loads, hoisted address arithmetic, "
        "fused multiply-adds, the tensor cores for products) make it faster."
    )
    return Finding(
        ISSUE, text, (f.issue_line(facts), f.tensor_line(facts), *f.stall_lines(facts, 1))
    )


def _waiting(facts: f.Facts, busiest: str, busy: float) -> Finding:
    """No unit is busy."""
    if facts.spills:
        return _spilling(facts)
    if busiest == SHARED and busy >= f.NEAR and facts.conflicts:
        return _shared(facts)
    if facts.sm_busy < f.BUSY:
        return _small_grid(facts)
    lines = [*f.occupancy_lines(facts), f.issue_line(facts), *f.stall_lines(facts)]
    few = min(facts.metrics[m.MAX_OCCUPANCY], facts.metrics[m.OCCUPANCY]) <= f.FEW_WARPS
    if busiest == TENSOR and busy >= f.NEAR:
        text = (
            f"No unit is busy. The nearest are the tensor cores with {facts.tensor:.0f} %: between "
            "the multiplications they wait for operands, for softmax, or for barriers. Overlap is "
            "what is missing (more buffers, two groups in ping-pong, the next product issued "
            "before this softmax), or work, if the launch is short."
        )
        return Finding(LATENCY, text, (f.tensor_line(facts), *lines))
    if few:
        return _low_occupancy(facts, lines)
    text = (
        f"No unit is busy (the nearest, {busiest}, at {busy:.0f} %), although "
        "there are warps enough: they wait for one another or for long latencies. More independent "
        "work in each thread, loads issued earlier, or fewer barriers help."
    )
    return Finding(LATENCY, text, tuple(lines))


def _small_grid(facts: f.Facts) -> Finding:
    blocks = facts.metrics.get(m.GRID_SIZE)
    of = f" of {blocks:.0f} blocks" if blocks else ""
    text = (
        f"The SMs have a block for {facts.sm_busy:.0f} % of the time only: the grid{of} is too "
        "small for this GPU, or its last wave too empty. More and smaller blocks (split along "
        "another dimension, such as the keys) would use the rest; `waves` shows the loss."
    )
    line = f.line(
        "time in which an SM has a block", facts.sm_busy, m.SM_BUSY, f"few below {f.BUSY:.0f} %"
    )
    return Finding(SMALL_GRID, text, (line, *f.occupancy_lines(facts)))


def _low_occupancy(facts: f.Facts, lines: list[str]) -> Finding:
    most, had = facts.metrics[m.MAX_OCCUPANCY], facts.metrics[m.OCCUPANCY]
    limits = {w: facts.metrics[n] for w, n in m.BLOCK_LIMITS.items() if n in facts.metrics}
    if most > f.FEW_WARPS:
        why = (
            f"the launch would allow {most:.0f} %, but blocks end at different times or are too few"
        )
    elif limits:
        least = min(limits, key=lambda what: limits[what])
        why = f"what limits it to {limits[least]:.0f} block(s) an SM is {least}"
    else:
        why = "its registers, its shared memory or the size of its blocks allow no more"
    text = (
        f"No unit is busy, and only {had:.0f} % of the warps that an SM can hold are there: too "
        f"few to have something to do while others wait ({why}). Fewer registers or less shared "
        "memory a block would let in more warps; more independent work in each thread does the "
        "same without them."
    )
    return Finding(LOW_OCCUPANCY, text, tuple(lines))
