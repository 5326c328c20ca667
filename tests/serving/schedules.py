"""A serving call in the emulator: whichever warp runs first, and whether copies land early or late,
its results have the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import torch

from flash_attention import emulated
from flash_helpers.emulator import LaunchOptions, compare_schedules


def no_schedule_matters(
    call: Callable[[], Iterable[torch.Tensor]], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = emulated.emulated_kernel

    def run(options: LaunchOptions) -> list[Any]:
        class Scheduled:
            def __init__(self, *chosen: Any) -> None:
                self.launch = partial(found(*chosen).launch, options=options)

        monkeypatch.setattr(emulated, "emulated_kernel", Scheduled)
        return [x.numpy() for x in call()]

    compare_schedules(run, seed)
