"""Every planted fault is found: the tests of this folder fail where a header is wrong."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path

import pytest

from flash_helpers.emulator import KernelError

from .planted_faults import FAULTS, Fault


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.title)
def test_a_planted_fault_is_found(headers: Path, fault: Fault, seed: int, tmp_path: Path) -> None:
    copy = tmp_path / "include"
    shutil.copytree(headers, copy)
    arguments = dict(fault.arguments)
    if "seed" in inspect.signature(fault.test).parameters:
        arguments["seed"] = seed
    fault.test(headers, **arguments)
    fault.plant(copy)
    with pytest.raises((AssertionError, KernelError, pytest.fail.Exception)) as caught:
        fault.test(copy, **arguments)
    print(caught.type.__name__, str(caught.value)[:200])


def test_each_fault_is_one_of_its_own(headers: Path) -> None:
    """Titles, which are test ids, differ, and every fault changes something."""
    assert len({fault.title for fault in FAULTS}) == len(FAULTS)
    assert all(fault.old != fault.new for fault in FAULTS)


def test_a_fault_that_is_not_there_once_is_not_planted(headers: Path, tmp_path: Path) -> None:
    copy = tmp_path / "include"
    shutil.copytree(headers, copy)
    for text, times in (("no such line", 0), ("FLASH_DEVICE", 5)):
        fault = Fault("a fault", "flash/ptx/math.cuh", text, "", lambda headers: None)
        with pytest.raises(AssertionError, match=f"math.cuh: {times} times {text}"):
            fault.plant(copy)
