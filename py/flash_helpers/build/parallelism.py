"""How many compile jobs run at once: MAX_JOBS, else what cores and memory allow."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..compilers.errors import BuildError

JOBS_VARIABLE = "MAX_JOBS"
MOST_JOBS = 9999

# Measured peak of one compile job (docs/results/build-times.md), with a margin for larger kernels.
PEAK_BYTES_PER_JOB = 700 << 20

_CGROUP = Path("/sys/fs/cgroup")
_CGROUP_UNLIMITED = 1 << 60  # version 1 writes "no limit" as a number near 2**63


@dataclass(frozen=True)
class Jobs:
    count: int
    reason: str


def jobs(
    environ: Mapping[str, str] = os.environ, *, cores: int | None = None, memory: int | None = None
) -> Jobs:
    asked = environ.get(JOBS_VARIABLE, "").strip()
    if asked:
        count = _whole_number(asked)
        if count is None or not 1 <= count <= MOST_JOBS:
            shown = asked if len(asked) <= 20 else f"{asked[:20]}…"
            raise BuildError(
                f"{JOBS_VARIABLE}={shown!r}: expected a whole number from 1 to {MOST_JOBS}"
            )
        return Jobs(count, JOBS_VARIABLE)
    cores = available_cores() if cores is None else cores
    memory = available_memory() if memory is None else memory
    fitting = max(1, memory // PEAK_BYTES_PER_JOB)
    if fitting < cores:
        return Jobs(fitting, f"{memory / 2**30:.1f} GiB of free memory")
    return Jobs(cores, f"{cores} cores")


def available_cores(cgroup: Path = _CGROUP) -> int:
    """Cores this process may use: affinity mask and cgroup quota, whichever is less."""
    count = len(os.sched_getaffinity(0))
    # Of cgroup's version 2 and 1; "max" and "-1" are no limit.
    newer = _read(cgroup / "cpu.max").split()
    older = [_read(cgroup / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    quota = (_quota(*newer) if len(newer) == 2 else None) or _quota(*older)
    return max(1, min(count, quota) if quota else count)


def _quota(quota: str, period: str) -> int | None:
    microseconds, of = _whole_number(quota), _whole_number(period)
    return max(1, microseconds // of) if microseconds is not None and of else None


def available_memory(cgroup: Path = _CGROUP, meminfo: Path = Path("/proc/meminfo")) -> int:
    """Bytes that new processes can have: MemAvailable and what the cgroup leaves."""
    available = 1 << 62
    for line in _read(meminfo).splitlines():
        if line.startswith("MemAvailable:"):
            found = _whole_number(line.removeprefix("MemAvailable:").removesuffix("kB"))
            available = available if found is None else found * 1024
    left = [
        _cgroup_memory_left(cgroup, "memory.max", "memory.current"),
        _cgroup_memory_left(cgroup / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ]
    return min([available, *(amount for amount in left if amount is not None)])


def _cgroup_memory_left(folder: Path, limit: str, usage: str) -> int | None:
    most, used = _whole_number(_read(folder / limit)), _whole_number(_read(folder / usage))
    if most is None or used is None or most > _CGROUP_UNLIMITED:
        return None
    reclaimable = 0  # file cache counts as used, but gives way
    for line in _read(folder / "memory.stat").splitlines():
        if line.startswith("inactive_file "):
            reclaimable = _whole_number(line.removeprefix("inactive_file ")) or 0
    return max(0, most - used + reclaimable)


def _whole_number(text: str) -> int | None:
    """Of up to 19 digits 0 to 9, with blanks around it. isdigit() takes "²" too, and int() refuses
    some thousand digits."""
    match = re.fullmatch(r"\s*([0-9]{1,19})\s*", text)
    return int(match[1]) if match else None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
