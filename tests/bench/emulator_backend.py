"""Real kernels in the emulator, for tests of what is around a measurement. The times are those of
the emulation: nothing about a GPU follows from them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flash_attention
from flash_helpers.base.timing import Policy, Sample
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import compare
from flash_helpers.kernel_configs import parse_kernel_name_into_config
from flash_lab.bench.clocks import ClockSampler
from flash_lab.bench.energy import EnergyError, EnergyMeter
from flash_lab.bench.row import problem_of

if TYPE_CHECKING:
    import torch


class EmulatedCandidate:
    def __init__(self, kernel: str, inputs: tuple[torch.Tensor, ...]) -> None:
        self.config = parse_kernel_name_into_config(kernel)
        self.inputs = inputs

    def __call__(self) -> torch.Tensor:
        q, k, v = self.inputs
        return flash_attention.forward(self.config, q, k, v)

    def check(self) -> str:
        q, k, v = self.inputs
        outcome = compare(self(), attention_reference(q, k, v)[0])
        return "" if outcome.passed else outcome.describe()

    def describe(self) -> dict[str, Any]:
        return {"label": self.config.short_form(), "note": ""}

    def captured(self) -> Callable[[], object]:
        return self


class EmulatorBackend:
    def environment(self) -> dict[str, Any]:
        return {"gpu": "emulator"}

    def prepare(self, shape: dict[str, Any]) -> None:
        self.inputs = problem_of(shape).tensors(shape["seed"], "cpu")

    def candidate(self, provider: str, kernel: str) -> Any:
        return EmulatedCandidate(kernel, self.inputs)

    def timer(self, policy: Policy) -> Callable[[Callable[[], object]], Sample]:
        def timer(function: Callable[[], object]) -> Sample:
            began = time.monotonic()
            function()
            ended = time.monotonic()
            return Sample((ended - began) * 1e3, None, began, ended)

        return timer

    def clocks(self) -> ClockSampler:
        return ClockSampler(uuid="none")

    def clock_under(self, function: Callable[[], object], call_ms: float) -> float | None:
        return None

    def energy_meter(self) -> EnergyMeter:
        raise EnergyError("the emulator has no energy counter")

    def implausible(self, shape: dict[str, Any], milliseconds: float) -> str:
        return ""

    def lost(self) -> str:
        return ""
