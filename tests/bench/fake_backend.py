"""A backend without a GPU, with planted faults: FAKE_FAULTS maps part of a kernel's name to one.

Runs in a worker process; FAKE_LOG names a file that hears of every check, for counting.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flash_helpers.base.timing import Policy, Sample
from flash_lab.bench.clocks import ClockSampler, Reading
from flash_lab.bench.energy import Energy, EnergyError, EnergyMeter
from flash_lab.bench.measure import SkippedError

FAULTS: dict[str, str] = json.loads(os.environ.get("FAKE_FAULTS", "{}"))
JOULES: dict[str, float] = json.loads(os.environ.get("FAKE_JOULES", "{}"))
BYTES: dict[str, int] = json.loads(os.environ.get("FAKE_BYTES", "{}"))
SLOWDOWN = float(os.environ.get("FAKE_SLOWDOWN", "1.05"))
# Part of a kernel's name to what it adds to its row, and to what it writes for an event.
ADDED: dict[str, Any] = json.loads(os.environ.get("FAKE_ADDED", "{}"))
LINES: dict[str, str] = json.loads(os.environ.get("FAKE_LINES", "{}"))
SPEEDS: dict[str, float] = json.loads(os.environ.get("FAKE_SPEEDS", "{}"))


def log(text: str) -> None:
    if path := os.environ.get("FAKE_LOG"):
        with Path(path).open("a") as file:
            file.write(f"{text}\n")


class FakeCandidate:
    def __init__(self, provider: str, kernel: str, seq_len: int = 0) -> None:
        self.provider, self.kernel, self.seq_len = provider, kernel, seq_len
        self.fault = next((f for part, f in FAULTS.items() if part in f"{kernel}|"), "")
        self.n_runs = 0

    def __call__(self) -> object:
        self.n_runs += 1
        if self.fault == "hang when timed":
            time.sleep(1000)
        if self.fault == "raises when timed":
            raise RuntimeError("CUDA error: misaligned address")
        if self.fault == "dies when timed" and self.n_runs == 4:
            os._exit(9)
        return self

    def check(self) -> str:
        log(f"check {self.kernel}")
        for line in (line for part, line in LINES.items() if part in f"{self.kernel}|"):
            text = Path(line[1:]).read_text() if line.startswith("@") else line
            with os.fdopen(os.dup(int(sys.argv[2])), "wb") as pipe:  # the worker's, for events
                pipe.write(text.encode("latin-1"))
        if self.fault == "raises":
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore\n" * 9)
        if self.fault == "exit":
            os._exit(7)
        if self.fault == "segfault":
            ctypes.string_at(0)
        if self.fault == "hang":
            time.sleep(1000)
        if self.fault == "kills its parent at 1024" and self.seq_len == 1024:
            os.kill(os.getppid(), 9)
            time.sleep(1000)
        if self.fault == "hangs at 1024" and self.seq_len == 1024:
            time.sleep(1000)
        if self.fault == "interrupts":
            os.kill(os.getppid(), 2)
            time.sleep(1000)
        if self.fault == "slow":
            time.sleep(0.3)
        if self.fault == "wrong later" and self.n_runs:
            return "it is wrong on the second look"
        return "5 of 8 rows are wrong" if self.fault == "wrong but fast" else ""

    def describe(self) -> dict[str, Any]:
        if self.provider == "ceiling":
            return {"flop": 10**12} if self.kernel.startswith("matmul") else {"bytes": 10**9}
        n_bytes = [n for part, n in BYTES.items() if part in f"{self.kernel}|"] or [1 << 20]
        known = {"label": self.kernel, "note": "", "registers": 128, "memory_bytes": n_bytes[0]}
        return known | next((more for part, more in ADDED.items() if part in self.kernel), {})

    def captured(self) -> Callable[[], object]:
        return self

    def median_ms(self) -> float:
        if self.fault.startswith("takes "):
            return float(self.fault.removeprefix("takes "))
        if self.fault == "wrong but fast":
            return 0.001
        known = [ms for part, ms in SPEEDS.items() if part in f"{self.kernel}|"]
        return known[0] if known else 1 + zlib.crc32(self.kernel.encode()) % 1000 / 1000


class FakeBackend:
    def __init__(self) -> None:
        if os.environ.get("FAKE_START") == "fails":
            raise RuntimeError("torch sees no CUDA device")
        if library := os.environ.get("FLASH_ATTENTION_LIBRARY"):
            log(f"library {library}")
        seed = os.environ.get("FAKE_SEED", "1")
        self.chance = random.Random(os.getpid() if seed == "pid" else int(seed))

    def environment(self) -> dict[str, Any]:
        return {
            "gpu": os.environ.get("FAKE_GPU", "Fake GPU"),
            "compute_capability": "9.0",
            "build_fingerprint": "feed",
            **json.loads(os.environ.get("FAKE_ENVIRONMENT", "{}")),
        }

    def prepare(self, shape: dict[str, Any]) -> None:
        self.seq_len = shape.get("seq_len", 0)
        self.slowed = shape.get("slowed_kernel", "")
        if FAULTS.get("prepare") == str(shape.get("seq_len")):
            os._exit(5)

    def candidate(self, provider: str, kernel: str) -> FakeCandidate:
        if FAULTS.get(kernel) == "absent":
            raise SkippedError("not installed")
        return FakeCandidate(provider, kernel, self.seq_len)

    def timer(self, policy: Policy) -> Callable[[Callable[[], object]], Sample]:
        def timer(function: Callable[[], object]) -> Sample:
            candidate: Any = function
            candidate()
            now = time.monotonic()
            slowdown = SLOWDOWN if candidate.kernel == self.slowed else 1.0
            ms = candidate.median_ms() * slowdown * self.chance.lognormvariate(0, 0.01)
            return Sample(ms, 1700.0, now, time.monotonic())

        return timer

    def clocks(self) -> ClockSampler:
        clocks = ClockSampler(uuid="none")
        clocks.readings.append(Reading(0.0, 1700, 600.0, 60, int(FAULTS.get("throttle", "4"))))
        return _Still(readings=clocks.readings)

    def clock_under(self, function: Callable[[], object], call_ms: float) -> float | None:
        if FAULTS.get("clock") == "raises":
            raise RuntimeError("no such stream")
        return 1650.0

    def energy_meter(self) -> EnergyMeter:
        if FAULTS.get("energy") == "refused":
            raise EnergyError("NVML gives no energy of this GPU: Not Supported")
        return _FakeMeter(self.chance)

    def implausible(self, shape: dict[str, Any], milliseconds: float) -> str:
        return "faster than any GPU" if milliseconds < 1e-4 else ""

    def lost(self) -> str:
        is_gone = any(what == "raises" for name, what in FAULTS.items() if name != "clock")
        return "the context is gone" if is_gone else ""


class _FakeMeter(EnergyMeter):
    """FAKE_JOULES maps part of a kernel's name to joules; the others take one for each ms."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def per_call(self, function: Callable[[], object], call_ms: float, seconds: float) -> Energy:
        candidate: Any = function
        candidate()
        known = [joules for part, joules in JOULES.items() if part in f"{candidate.kernel}|"]
        joules = (known[0] if known else call_ms) * self.chance.lognormvariate(0, 0.005)
        return Energy(joules, 100, 0.1, 5)


class _Still(ClockSampler):
    """Readings that were made beforehand."""

    def __enter__(self) -> ClockSampler:
        return self
