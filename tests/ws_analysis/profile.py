"""A profile as `ncu --import … --page raw --csv` prints it: a head, a line of units, launches."""

from __future__ import annotations

import csv
import io

from flash_lab.profiling import bottleneck_metrics as m
from flash_lab.ws_analysis.profiles import (
    ACTIVE_LANES,
    IPC,
    L1_HIT,
    L2_HITS,
    L2_MISSES,
    LOAD_EFFICIENCY,
    MEMORY,
    STORE_EFFICIENCY,
)

_HEAD = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
         "Block Size", "Grid Size", "Device", "CC")  # fmt: skip
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
KERNEL = "attn_fwd_ws_pipelined"

# Of a kernel that keeps the tensor cores busy and loads with TMA: (value, unit) by ncu's names.
TENSOR_BOUND: dict[str, tuple[str, str]] = {
    "gpu__time_duration.sum": ("1,712,000", "ns"),
    "sm__cycles_elapsed.avg.per_second": ("1,500,000,000", "hz"),
    m.DRAM: ("4.25", "%"),
    m.L2: ("31.5", "%"),
    m.LSU_DATA: ("22", "%"),
    m.SHARED_DATA: ("18", "%"),
    m.TENSOR: ("88.4", "%"),
    m.ISSUE: ("35.2", "%"),
    m.SM_BUSY: ("97.5", "%"),
    m.MAX_OCCUPANCY: ("18.75", "%"),
    m.OCCUPANCY: ("18.5", "%"),
    m.CONFLICTS: ("1,000", ""),
    m.SHARED_WAVEFRONTS: ("4,000,000", ""),
    m.INSTRUCTIONS: ("90,000,000", "inst"),
    **dict.fromkeys((*m.LOCAL_REQUESTS, *m.LOCAL_SECTORS), ("0", "")),
    m.GLOBAL_SECTORS[0]: ("0", "sector"),
    m.GLOBAL_SECTORS[1]: ("65,536", "sector"),
    LOAD_EFFICIENCY.name: ("0", "%"),
    STORE_EFFICIENCY.name: ("50", "%"),
    L1_HIT.name: ("12.5", "%"),
    L2_HITS.name: ("3,670", "sector"),
    L2_MISSES.name: ("330", "sector"),
    MEMORY.name: ("42", "%"),
    ACTIVE_LANES.name: ("31.2", ""),
    IPC.name: ("1.41", "inst/cycle"),
    _STALL.format("long_scoreboard"): ("0.5", "inst"),
    _STALL.format("barrier"): ("1.5", "inst"),
    _STALL.format("wait"): ("0", "inst"),
}


def raw_csv(*launches: tuple[str, dict[str, tuple[str, str]]]) -> str:
    """(symbol, values) each, as one process launches them."""
    names = list(launches[0][1]) if launches else []
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([*_HEAD, *names])
    writer.writerow([""] * len(_HEAD) + [launches[0][1][name][1] for name in names])
    for number, (symbol, values) in enumerate(launches):
        identity = [number, "4711", "python3.12", "127.0.0.1", symbol, "1", "7", "(384, 1, 1)",
                    "(132, 1, 1)", "0", "9.0"]  # fmt: skip
        writer.writerow([*identity, *(values[name][0] for name in names)])
    return "==PROF== Connected to process 4711 (/usr/bin/python3.12)\n" + out.getvalue()
