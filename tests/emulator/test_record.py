"""The recorder of a GPU's answers, with a program in place of the process that has the GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from . import record
from .conformance.emulated import outputs
from .conformance.suite import Answers, suite

ABOUT = {"device": "none"}
# Answers what lies in a folder; one entry ends in a signal, one hangs, one gives no stable answer.
CHILD = """
import os, pathlib, shutil, sys, time
folder, _, entry, output = sys.argv[1:]
if entry == "mma_f16":
    os.abort()
if entry == "mma_bf16":
    time.sleep(600)
again = pathlib.Path(folder, "again")
source = "other" if entry == "ldmatrix" and again.exists() else entry
if entry == "ldmatrix":
    again.touch()
shutil.copy(pathlib.Path(folder, source + ".npz"), output)
"""


@pytest.fixture
def child(tmp_path: Path) -> list[str]:
    about = np.frombuffer(json.dumps(ABOUT).encode(), np.uint8)
    for entry, out in outputs().items():
        np.savez(tmp_path / f"{entry}.npz", out=out, about=about)
    np.savez(tmp_path / "other.npz", out=outputs()["ldmatrix"] ^ 1, about=about)
    return [sys.executable, "-c", CHILD, str(tmp_path)]


def test_an_entry_that_fails_costs_only_itself(
    child: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "answers.npz"
    recorded, failed = record.record("sm80", path, 2, child, timeout=5)
    assert failed == ["ldmatrix", "mma_f16", "mma_bf16"]
    answers = Answers(path)
    assert answers.about == ABOUT
    for kernels in suite():
        for case in kernels.cases:
            answer = answers.get(kernels, case)
            assert (answer is None) == (kernels.entry in failed)
            if answer is not None:
                np.testing.assert_array_equal(
                    answer.view(np.uint8),
                    kernels.result(recorded[kernels.entry], case).view(np.uint8),
                )
    text = capsys.readouterr().out
    for line in ("ldmatrix: two runs differ", "mma_f16: exit code -6", "mma_bf16: no answer"):
        assert f"NOT RECORDED sm80 {line}" in text


def test_answers_that_are_not_the_emulator_s_are_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers: dict[str, Any] = {entry: out.copy() for entry, out in outputs().items()}
    assert record.differing("sm80", answers) == 0
    (kernels,) = (item for item in suite() if item.entry == "memory")
    answers["memory"][kernels.offsets["ret"]] ^= 1
    assert record.differing("sm80", answers) == 1
    assert "DIFFERS sm80 ret: 1 of 64" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("recorded", "wrong", "code"),
    [
        (({"a": 1}, []), 0, 0),
        (({"a": 1}, []), 2, 1),
        (({"a": 1}, ["b"]), 2, 3),
        (({}, ["a"]), 0, 4),
    ],
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recorded: Any, wrong: int, code: int
) -> None:
    paths = []

    def fake(name: str, path: Path, jobs: int) -> Any:
        paths.append(path)
        return recorded

    monkeypatch.setattr(record, "record", fake)
    monkeypatch.setattr(record, "differing", lambda name, outputs: wrong)
    monkeypatch.setattr(sys, "argv", ["record", "--out", str(tmp_path / "new")])
    assert record.main() == code
    assert paths == [tmp_path / "new" / f"answers-{name}.npz" for name in ("sm80", "sm90a")]
