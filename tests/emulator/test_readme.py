"""The example of the emulator's README runs as it stands, and breaks as it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import flash_helpers.emulator
from flash_helpers.emulator import OutOfBoundsError, RaceError

from .support import cuda_to_ptx

README = Path(flash_helpers.emulator.__file__).with_name("README.md").read_text()


def _block(language: str) -> str:
    match = re.search(rf"```{language}\n(.*?)```", README, re.S)
    assert match
    return match[1]


def _run(cuda: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(folder)
    Path("reduce.ptx").write_text(cuda_to_ptx(cuda))
    names: dict[str, Any] = {}
    exec(_block("python"), names)
    return names["sums"]


def test_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = _block("cuda")
    assert (_run(cuda, tmp_path, monkeypatch) == 256).all()
    unsynchronised = cuda.replace("__syncthreads();", "")
    with pytest.raises(RaceError) as race:
        _run(unsynchronised, tmp_path, monkeypatch)
    assert "write-after-read, shared memory partial, bytes 4 to 7, 28 times" in race.value.message
    assert race.value.location.thread == (32, 0, 0)
    with pytest.raises(OutOfBoundsError, match="0 bytes behind the end of values") as caught:
        _run(cuda.replace("+ t]", "+ t + 1]"), tmp_path, monkeypatch)
    assert caught.value.location.block == (3, 0, 0)
    assert caught.value.location.thread == (255, 0, 0)
    assert ":4 (PTX line" in caught.value.location.source
