"""The hardware counters from which `bottleneck.explain` tells what limits a kernel."""

from collections.abc import Mapping

from ..bench.ncu_metrics import Metric, MetricError
from ..bench.ncu_read import Launch

_PER_CENT = {"%": 1.0}

# How busy the units are. Those with `elapsed` count the whole time of the kernel, those with
# `active` the cycles in which an SM has a block.
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
LSU_DATA = "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed"
SHARED_DATA = "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
SM_BUSY = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
# `--set full` has these in its place.
_ACTIVE_CYCLES, _ELAPSED_CYCLES = "sm__cycles_active.avg", "sm__cycles_elapsed.avg"
# Warps: what the launch would allow at most, and what there was.
MAX_OCCUPANCY = "sm__maximum_warps_per_active_cycle_pct"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
# Shared memory: a wavefront is one turn of the data pipe; a conflict is a turn that would not be
# there if the lanes of a warp hit 32 different banks.
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
SHARED_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
# Local memory is where ptxas spills registers; a request is one instruction of a warp.
INSTRUCTIONS = "smsp__inst_executed.sum"
_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_local_op_{}.sum"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_{}_op_{}.sum"
LOCAL_REQUESTS = tuple(_REQUESTS.format(op) for op in ("ld", "st"))
LOCAL_SECTORS = tuple(_SECTORS.format("local", op) for op in ("ld", "st"))
GLOBAL_SECTORS = tuple(_SECTORS.format("global", op) for op in ("ld", "st"))

PERCENTAGES = (
    DRAM, L2, LSU_DATA, SHARED_DATA, TENSOR, ISSUE, SM_BUSY, MAX_OCCUPANCY, OCCUPANCY,
)  # fmt: skip
COUNTS = (
    CONFLICTS, SHARED_WAVEFRONTS, INSTRUCTIONS, *LOCAL_REQUESTS, *LOCAL_SECTORS, *GLOBAL_SECTORS,
)  # fmt: skip
COLLECTED = (*PERCENTAGES, *COUNTS)
# Asked for only where the data pipe of L1 and shared memory is the busiest unit: `--set full` has
# not all of them.
FOR_SHARED = (SHARED_DATA, CONFLICTS, SHARED_WAVEFRONTS)
REQUIRED = tuple(name for name in COLLECTED if name not in FOR_SHARED)

# What the paragraph says more, where ncu has it.
GRID_SIZE = "launch__grid_size"
REGISTERS = "launch__registers_per_thread"
# Blocks of this kernel that one SM could hold, if this resource alone were the limit.
BLOCK_LIMITS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "the size of its blocks": "launch__occupancy_limit_warps",
    "the number of blocks an SM can hold": "launch__occupancy_limit_blocks",
}
# Warps that wait for this, in the mean over the cycles with an issued instruction.
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = {
    "data from global or local memory": _STALL.format("long_scoreboard"),
    "data from shared memory": _STALL.format("short_scoreboard"),
    "a slot in the queue to L1 (global and local memory)": _STALL.format("lg_throttle"),
    "a slot in the queue to shared memory": _STALL.format("mio_throttle"),
    "an arithmetic pipe": _STALL.format("math_pipe_throttle"),
    "the fixed latency of an instruction": _STALL.format("wait"),
    "a barrier": _STALL.format("barrier"),
}
OPTIONAL = (GRID_SIZE, REGISTERS, *BLOCK_LIMITS.values(), *STALLS.values())


def _metric(name: str) -> Metric:
    return Metric(name, name, name, _PER_CENT if name in PERCENTAGES else None)


# For ncu_run.Ncu.metrics: what a run under ncu has to collect.
METRICS = tuple(map(_metric, (*COLLECTED, *OPTIONAL)))


def values_of(launch: Launch) -> dict[str, float]:
    """The metrics of one launch as `explain` wants them. What ncu could not measure is left out;
    a percentage in another unit is a MetricError."""
    values = {
        metric.name: metric.read(launch.values)
        for metric in METRICS
        if metric.name in launch.values and launch.values[metric.name].is_given
    }
    cycles = [launch.values.get(name) for name in (_ACTIVE_CYCLES, _ELAPSED_CYCLES)]
    if SM_BUSY not in values and all(count and count.is_given for count in cycles):
        active, elapsed = (
            _metric(name).read(launch.values) for name in (_ACTIVE_CYCLES, _ELAPSED_CYCLES)
        )
        values[SM_BUSY] = 100 * active / max(elapsed, 1.0)
    return values


def check(metrics: Mapping[str, float], wanted: tuple[str, ...] = REQUIRED) -> None:
    """Raises MetricError for what `explain` cannot do without, or cannot believe."""
    missing = [name for name in wanted if name not in metrics]
    if missing:
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise MetricError(
            f"{missing[0]} is absent{more}: `profiling.py bottleneck COMMAND` collects them all"
        )
    for name in wanted:
        value = metrics[name]
        most = 200.0 if name in PERCENTAGES else float("inf")  # bursts exceed the sustained peak
        if not 0 <= value <= most:  # NaN, too
            raise MetricError(f"{name} is {value:g}: expected a number in 0..{most:g}")
