"""How many compile jobs run at once: MAX_JOBS, else what cores and memory allow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import BuildError

JOBS_VARIABLE = "MAX_JOBS"

# Measured peak of one compile job (docs/results/build-times.md), with a margin for larger kernels.
PEAK_BYTES_PER_JOB = 700 << 20

_CGROUP = Path("/sys/fs/cgroup")
_CGROUP_UNLIMITED = 1 << 60  # version 1 writes "no limit" as a number near 2**63


@dataclass(frozen=True)
class Jobs:
    count: int
    reason: str


def jobs(
    environ: Mapping[str, str] | None = None,
    *,
    cores: int | None = None,
    memory: int | None = None,
) -> Jobs:
    environ = os.environ if environ is None else environ
    asked = environ.get(JOBS_VARIABLE, "").strip()
    if asked:
        if not asked.isascii() or not asked.isdigit() or int(asked) < 1:
            raise BuildError(f"{JOBS_VARIABLE}={asked!r}: expected a whole number of at least 1")
        return Jobs(int(asked), JOBS_VARIABLE)
    cores = available_cores() if cores is None else cores
    memory = available_memory() if memory is None else memory
    fitting = max(1, memory // PEAK_BYTES_PER_JOB)
    if fitting < cores:
        return Jobs(fitting, f"{memory / 2**30:.1f} GiB of free memory")
    return Jobs(cores, f"{cores} cores")


def available_cores(cgroup: Path = _CGROUP) -> int:
    """Cores this process may use: affinity mask and cgroup quota, whichever is less."""
    count = len(os.sched_getaffinity(0))
    quota = _quota_version_2(cgroup) or _quota_version_1(cgroup)
    return max(1, min(count, quota) if quota else count)


def _quota_version_2(cgroup: Path) -> int | None:
    words = _read(cgroup / "cpu.max").split()
    if len(words) != 2 or not words[0].isdigit():
        return None  # "max 100000": no limit
    return max(1, int(words[0]) // int(words[1]))


def _quota_version_1(cgroup: Path) -> int | None:
    quota = _read(cgroup / "cpu" / "cpu.cfs_quota_us").strip()
    period = _read(cgroup / "cpu" / "cpu.cfs_period_us").strip()
    if not quota.isdigit() or not period.isdigit():
        return None  # "-1": no limit
    return max(1, int(quota) // int(period))


def available_memory(cgroup: Path = _CGROUP, meminfo: Path = Path("/proc/meminfo")) -> int:
    """Bytes that new processes can have: MemAvailable and what the cgroup leaves."""
    available = 1 << 62
    for line in _read(meminfo).splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    left = [
        _cgroup_memory_left(cgroup, "memory.max", "memory.current"),
        _cgroup_memory_left(cgroup / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ]
    return min([available, *(amount for amount in left if amount is not None)])


def _cgroup_memory_left(folder: Path, limit: str, usage: str) -> int | None:
    most, used = _read(folder / limit).strip(), _read(folder / usage).strip()
    if not most.isdigit() or not used.isdigit() or int(most) > _CGROUP_UNLIMITED:
        return None
    reclaimable = 0  # file cache counts as used, but gives way
    for line in _read(folder / "memory.stat").splitlines():
        if line.startswith("inactive_file "):
            reclaimable = int(line.split()[1])
    return max(0, int(most) - int(used) + reclaimable)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
