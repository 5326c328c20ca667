"""ptx/setmaxnreg.cuh: an increase waits for the registers that others give up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flash_helpers.emulator import DeadlockError
from tests.device.launching import SM90, device_kernel, launch, wanted

# Registers of a thread in the first warpgroup and in the two others; at the start all have 168.
CHANGES = [(40, 232), (24, 240), (40, 240)]


@pytest.mark.parametrize("which", range(3), ids=[f"{a} and 2 x {b}" for a, b in CHANGES])
def test_all_registers_and_no_more(headers: Path, which: int) -> None:
    less, more = CHANGES[which]
    out = wanted(384, np.int32)
    kernel = device_kernel(headers, "ptx/setmaxnreg.cu", architecture=SM90)
    if less + 2 * more <= 3 * 168:
        launch(kernel, out, which, block=384)
        np.testing.assert_array_equal(out, 1)
    else:
        with pytest.raises(DeadlockError, match="setmaxnreg"):
            launch(kernel, out, which, block=384)
