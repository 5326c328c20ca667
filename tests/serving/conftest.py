"""Outputs and scratch memory hold NaN before a kernel writes them; which family's kernels run, and
what they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import flash_attention.emulated
from flash_helpers.emulator import LaunchReport
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.sm80_serve.family import Sm80Serve
from flash_helpers.kernels.sm80_serve_mla.family import Sm80ServeMla
from flash_helpers.kernels.sm90_serve.config import HopperServeKernelConfig
from flash_helpers.kernels.sm90_serve_mla.config import HopperMlaKernelConfig

from .problems import poisoned_memory as poisoned


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    with poisoned():
        yield


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[KernelConfig, LaunchReport]]:
    """What was launched, and what it did."""
    found: list[tuple[KernelConfig, LaunchReport]] = []
    real = flash_attention.emulated.emulated_kernel

    class Reported:
        def __init__(self, config: KernelConfig, variant: Variant | None) -> None:
            self.config, self.kernel = config, real(config, variant)

        def launch(self, **arguments: Any) -> LaunchReport:
            report = self.kernel.launch(**arguments)
            found.append((self.config, report))
            return report

    monkeypatch.setattr(flash_attention.emulated, "emulated_kernel", Reported)
    return found


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[KernelConfig]:
    """The Ampere families are asked last; which configurations ran."""
    for family in (Sm80Serve, Sm80ServeMla):
        monkeypatch.setattr(family, "preference", lambda *_: -1)
    launch = flash_attention.emulated.launch_serving
    ran: list[KernelConfig] = []

    def recorded(config: HopperServeKernelConfig, *arguments: object) -> None:
        ran.append(config)
        launch(config, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(flash_attention.emulated, "launch_serving", recorded)
    return ran


@pytest.fixture
def hopper(launched: list[KernelConfig]) -> Iterator[None]:
    """Every kernel that ran was of a Hopper family."""
    yield
    kinds = (HopperServeKernelConfig, HopperMlaKernelConfig)
    assert launched and all(isinstance(config, kinds) for config in launched)
