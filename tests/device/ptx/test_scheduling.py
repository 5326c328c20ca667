"""ptx/scheduling.cuh: the hints change the PTX, but no result."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.device.launching import device_kernel, entry_text, given, launch, wanted

FILE = "ptx/scheduling.cu"
FACTOR = 1000003


def test_forget_makes_a_value_opaque(headers: Path) -> None:
    assert str(5 * FACTOR) in entry_text(headers, FILE, "remembers")
    for entry in ("forgets", "hides"):
        assert str(5 * FACTOR) not in entry_text(headers, FILE, entry)
    for entry in ("remembers", "forgets", "hides"):
        out = wanted(32, np.uint32)
        launch(device_kernel(headers, FILE, entry), out)
        np.testing.assert_array_equal(out, 5 * FACTOR)


def test_needed_here_has_a_value_computed(headers: Path) -> None:
    assert "mul.lo" in entry_text(headers, FILE, "keeps")
    assert "mul.lo" not in entry_text(headers, FILE, "drops")
    for entry in ("keeps", "drops"):
        source, out = given(np.arange(1, 33), np.uint32), wanted(32, np.uint32)
        launch(device_kernel(headers, FILE, entry), source, out)
        np.testing.assert_array_equal(out, source)


def test_schedule_fence_is_an_instruction_between(headers: Path) -> None:
    load, fence, store = (
        entry_text(headers, FILE, "fences").index(text)
        for text in ("ld.global", "pmevent", "st.global")
    )
    assert load < fence < store
    source, out = given(np.arange(32), np.uint32), wanted(32, np.uint32)
    launch(device_kernel(headers, FILE, "fences"), source, out)
    np.testing.assert_array_equal(out, source + 1)
