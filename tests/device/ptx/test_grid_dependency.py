"""ptx/grid_dependency.cuh: nothing is read before the kernels that write it have ended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flash_helpers.emulator import EarlyAccessError
from tests.device.launching import SM90, device_kernel, entry_text, given, launch, wanted

FILE = "ptx/grid_dependency.cu"


def test_a_kernel_reads_behind_its_wait(headers: Path) -> None:
    source, out = given(np.arange(32), np.uint32), wanted(32, np.uint32)
    launch(device_kernel(headers, FILE, "waits", architecture=SM90), source, out)
    np.testing.assert_array_equal(out, source + 1)
    text = entry_text(headers, FILE, "waits", architecture=SM90)
    wait, begin, load = (
        text.index(word)
        for word in ("griddepcontrol.wait", "griddepcontrol.launch_dependents", "ld.global")
    )
    assert wait < begin < load


def test_one_that_does_not_is_found(headers: Path) -> None:
    kernel = device_kernel(headers, FILE, "reads_too_early", architecture=SM90)
    with pytest.raises(EarlyAccessError, match=r"read before griddepcontrol\.wait"):
        launch(kernel, given(np.arange(32), np.uint32), wanted(32, np.uint32))
