"""ptx/cluster.cuh: a place that one block writes again when another has released it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import (
    EmulatedKernel,
    LaunchOptions,
    RaceError,
    compile_kernel,
    schedules,
)
from tests.device.launching import SM90, device_kernel, device_ptx, launch, wanted, with_fault

FILE = "ptx/handing_on.cu"
WORDS = 5


def hand_on(kernel: EmulatedKernel, options: LaunchOptions | None = None) -> Any:
    out = wanted(WORDS, np.uint32)
    launch(kernel, out, WORDS, grid=2, block=32, options=options)
    return out


@pytest.mark.parametrize("early", [False, True], ids=["late", "early"])
def test_words_are_handed_on(headers: Path, early: bool, seed: int) -> None:
    for options in schedules(seed, options=LaunchOptions(early_loads=early)):
        out = hand_on(device_kernel(headers, FILE, "hand_on", SM90), options)
        np.testing.assert_array_equal(out, 3 * np.arange(WORDS))


@pytest.mark.parametrize(
    "pattern, new",
    [
        (r"arrive\.release\.cluster\.shared", "arrive.shared"),
        (r"parity\.acquire\.cluster\.shared", "parity.shared"),
    ],
    ids=["release", "acquire"],
)
def test_the_place_is_free_only_for_who_is_told(headers: Path, pattern: str, new: str) -> None:
    text = with_fault(device_ptx(headers, FILE, SM90), pattern, 0, 1, new)
    with pytest.raises(RaceError):
        hand_on(compile_kernel(text, "hand_on"))
