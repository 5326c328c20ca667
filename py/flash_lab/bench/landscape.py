"""What each switch of a configuration is worth: kernels that differ in nothing else, in pairs."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from flash_helpers.kernels.contract import KernelConfig

from .results import ProblemResult, config_of

_NOT_SWITCHES = ("dtype", "d_head", "step")


@dataclass(frozen=True)
class Worth:
    """Times with `after` in place of `before`, as ratios: below 1 is faster."""

    switch: str
    before: int
    after: int
    ratios: tuple[float, ...]

    @property
    def middle(self) -> float:
        return math.exp(statistics.fmean(map(math.log, self.ratios)))

    def label(self) -> str:
        if isinstance(self.before, bool):
            return self.switch
        return f"{self.switch} {self.before} → {self.after}"


def worth_of_switches(problems: Iterable[ProblemResult]) -> list[Worth]:
    """Every change of a single field that was measured, those that help most first."""
    ratios: dict[tuple[str, int, int], list[float]] = {}
    for problem in problems:
        named = {config_of(m.row): m.summary.median for m in problem.ranked if m.is_ours}
        times = {config: ms for config, ms in named.items() if config is not None}
        for config, ms in times.items():
            for name, before, after, other in _neighbours(config, times):
                ratios.setdefault((name, before, after), []).append(times[other] / ms)
    found = [Worth(*key, tuple(values)) for key, values in ratios.items()]
    return sorted(found, key=lambda worth: worth.middle)


def _neighbours(
    config: KernelConfig, known: Iterable[KernelConfig]
) -> Iterable[tuple[str, int, int, KernelConfig]]:
    """(field, value here, next greater value there, the other): one field differs."""
    for field in fields(config):
        if field.name in _NOT_SWITCHES:
            continue
        here = getattr(config, field.name)
        for other in known:
            if type(other) is not type(config):
                continue  # of another family
            there = getattr(other, field.name)
            if there > here and replace(other, **{field.name: here}) == config:
                yield field.name, here, there, other
