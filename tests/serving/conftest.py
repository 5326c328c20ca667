"""Outputs and scratch memory hold NaN before a kernel writes them; which family's kernels run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import flash_attention.emulated
from flash_helpers.kernels.contract import KernelConfig
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
