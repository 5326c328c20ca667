"""What may spoil a measurement without showing in it. It is looked at and said, never changed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..bench.clocks import open_nvml

GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_BLOCKING = "CUDA_LAUNCH_BLOCKING"


class UnfitEnvironmentError(RuntimeError):
    """No time that is measured here would mean anything; the message says why."""


@dataclass(frozen=True)
class Check:
    """`found`: what is there. `advice`: what to do about it; empty where all is well. `fatal`:
    nothing is timed."""

    what: str
    found: str
    advice: str = ""
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.found}" + (f" ({self.advice})" if self.advice else "")


def checks(environ: Mapping[str, str] = os.environ, governor: Path = GOVERNOR) -> list[Check]:
    """Of this process and this machine."""
    try:
        found = governor.read_text().strip()
        slow = "" if found == "performance" else "launches may come late: 'performance' is steadier"
    except OSError:
        found, slow = "not readable", ""
    problem = open_nvml("")[2]
    lost = "no energy, no throttle reasons" if problem else ""
    return [
        _blocking(environ.get(_BLOCKING, "")),
        Check("CPU governor", found, slow),
        Check("energy by NVML", problem or "answers", lost),
    ]


def require_fit(environ: Mapping[str, str] = os.environ) -> None:
    """Raises UnfitEnvironmentError where nothing shall be timed."""
    found = _blocking(environ.get(_BLOCKING, ""))
    if found.fatal:
        raise UnfitEnvironmentError(str(found))


def _blocking(value: str) -> Check:
    if value in ("", "0"):
        return Check(_BLOCKING, value or "not set")
    why = "the host waits for every launch, and its time is measured with the kernel's: unset it"
    return Check(_BLOCKING, value, why, fatal=True)
