"""The hardware counters that ncu_bench asks for, their units, and strict reading of their values.

A value that is absent, `n/a`, malformed or in an unknown unit is a `MetricError` that says so.
It never becomes a zero.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Newer and older spellings. `--print-units base` asks for the first of each; a report that was
# written without it scales each value by itself, so the unit of every single value is looked at.
_TIME = {
    "ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6,
    "s": 1e9, "second": 1e9,
}  # fmt: skip
_FREQUENCY = {
    "hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9,
    "cycle/second": 1.0, "cycle/usecond": 1e6, "cycle/nsecond": 1e9,
    "cycle/s": 1.0, "cycle/us": 1e6, "cycle/ns": 1e9,
}  # fmt: skip
_CYCLES = {"cycle": 1.0, "kcycle": 1e3, "mcycle": 1e6}
_PER_CENT = {"%": 1.0}
_REGISTERS = {"register/thread": 1.0}
_COUNT = {"": 1.0}

_NUMBER = re.compile(
    r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", re.ASCII
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:]*", re.ASCII)


class MetricError(ValueError):
    """A metric of a launch cannot be used; the message says why."""


@dataclass(frozen=True)
class Quantity:
    """What ncu says: the text or number as it came, and its unit."""

    value: str | float
    unit: str

    @property
    def is_given(self) -> bool:
        """Whether ncu has a value, sensible or not."""
        return not isinstance(self.value, str) or self.value.strip().lower() not in ("n/a", "")


@dataclass(frozen=True)
class Metric:
    """`key` names it in CSV files (with its unit), `title` in tables (after `/ divisor`)."""

    key: str
    name: str
    title: str
    units: Mapping[str, float] | None = None  # None: any, but one for all launches
    divisor: float = 1.0
    digits: int = 1
    additive: bool = False  # over several kernels of one call
    positive: bool = False  # zero is not a measurement

    def read(self, values: Mapping[str, Quantity]) -> float:
        """In the unit of `key`."""
        quantity = values.get(self.name)
        if quantity is None:
            raise MetricError(f"{self.name} is absent")
        value = parse_value(self.name, quantity)
        if self.units is not None:
            factor = self.units.get(quantity.unit.lower())
            if factor is None:
                raise MetricError(
                    f"{self.name} has the unit {quantity.unit!r}: expected one of "
                    f"{', '.join(map(repr, self.units))}"
                )
            value *= factor
        if self.positive and value <= 0:
            raise MetricError(f"{self.name} is {value:g}: it must be positive")
        return value


DURATION = Metric(
    "duration_ns", "gpu__time_duration.sum", "duration us", _TIME, 1e3, 2, True, True
)  # fmt: skip
CYCLES = Metric("cycles", "sm__cycles_elapsed.max", "cycles", _CYCLES, 1, 0, True, True)
CLOCK = Metric(
    "sm_clock_hz", "sm__cycles_elapsed.avg.per_second", "SM GHz", _FREQUENCY, 1e9, 3, False, True
)  # fmt: skip
CONFLICTS = Metric(
    "bank_conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "bank conflicts",
    _COUNT, 1, 0, True,
)  # fmt: skip
LOAD_CONFLICTS = Metric(
    "load_bank_conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "load conflicts", _COUNT, 1, 0, True,
)  # fmt: skip
LOAD_WAVEFRONTS = Metric(
    "load_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "load wavefronts", _COUNT, 1, 0, True,
)  # fmt: skip


def _per_cent(key: str, name: str, title: str) -> Metric:
    return Metric(key, name, title, _PER_CENT)


# All of them have values on a Hopper with ncu 2025.3.1 (tests/bench/data/ncu).
METRICS: tuple[Metric, ...] = (
    DURATION,
    CYCLES,
    CLOCK,
    Metric(
        "registers", "launch__registers_per_thread", "regs", _REGISTERS, 1, 0, False, True
    ),
    _per_cent("l2_hit_pct", "lts__t_sector_hit_rate.pct", "L2 hit %"),
    CONFLICTS,
    LOAD_CONFLICTS,
    LOAD_WAVEFRONTS,
    _per_cent(
        "tensor_pipe_pct", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "tensor %",
    ),
    _per_cent(
        "memory_pct", "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
        "memory %",
    ),
    _per_cent("dram_pct", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "DRAM %"),
    _per_cent(
        "occupancy_pct", "sm__warps_active.avg.pct_of_peak_sustained_active", "occupancy %"
    ),
    _per_cent("max_occupancy_pct", "sm__maximum_warps_per_active_cycle_pct", "max occ. %"),
)  # fmt: skip


def with_extra(names: Sequence[str]) -> tuple[Metric, ...]:
    """METRICS and those that the user named, each once."""
    known = {metric.name for metric in METRICS}
    extra = [name for name in dict.fromkeys(names) if name not in known]
    wrong = [name for name in extra if not _NAME.fullmatch(name)]
    if wrong:
        raise ValueError(
            f"{wrong[0]!r} is not a metric name such as sm__cycles_elapsed.max; "
            "`ncu --query-metrics` lists the names"
        )
    return METRICS + tuple(Metric(name, name, name, digits=2) for name in extra)


def parse_value(name: str, quantity: Quantity) -> float:
    """ncu writes thousands with commas; anything that is not wholly a finite number is refused."""
    if isinstance(quantity.value, str):
        text = quantity.value.strip()
        if not quantity.is_given:
            raise MetricError(f"{name} is {text or 'empty'}")
        if not _NUMBER.fullmatch(text):
            raise MetricError(f"{name} is {text!r}, not a number")
        value = float(text.replace(",", ""))
    else:
        value = float(quantity.value)
    if not math.isfinite(value):
        raise MetricError(f"{name} is {value}, not a finite number")
    return value
