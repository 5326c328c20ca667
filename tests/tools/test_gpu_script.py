"""tests/gpu/everything.sh with a stand-in for Python: what it runs, its exit codes, its logs."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_FILES = {path.stem for path in (ROOT / "tests/gpu").glob("test_*.py")}
_OTHERS = {"build", "costs", "random_calls", "random_operators"}
_STAND_IN = """#!/usr/bin/env bash
# Ends with the code that it is told for what it is asked to run.
case "$*" in
  "-c "*) name=gpu ;;
  "-m flash_helpers.build") name=build ;;
  *"tests/gpu -k "*) name=costs ;;
  "-m tests.gpu.random_"*) name=${2#tests.gpu.} ;;
  *"-m pytest"*)
    for word in "$@"; do case $word in *.py) name=$(basename "$word" .py) ;; esac; done ;;
esac
echo "this is $name"
case " $TOLD " in *" $name="*) code=${TOLD##*$name=}; exit "${code%% *}" ;; esac
"""


@pytest.mark.parametrize(
    ("told", "code", "last"),
    [
        ("", 0, "== 0 with failures, 0 stopped"),
        ("test_drop_in=5", 0, "== 0 with failures, 0 stopped"),
        ("test_drop_in=1", 1, "== 1 with failures, 0 stopped"),
        ("costs=5", 1, "== 1 with failures, 0 stopped"),
        ("random_calls=1", 1, "== 1 with failures, 0 stopped"),
        ("build=1", 1, "this is build"),
        ("test_large=124", 3, "== 0 with failures, 1 stopped"),
        ("test_large=124 test_drop_in=1", 1, "== 1 with failures, 1 stopped"),
        ("gpu=1", 4, "sees a GPU: nothing was run"),
    ],
)
def test_exit_codes(tmp_path: Path, told: str, code: int, last: str) -> None:
    python = tmp_path / "python"
    python.write_text(_STAND_IN)
    python.chmod(0o755)
    done = subprocess.run(
        [ROOT / "tests/gpu/everything.sh", tmp_path / "out"],
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(python), "TOLD": told},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert (done.returncode, last in done.stdout.splitlines()[-1]) == (code, True), done.stdout
    if code == 4:
        return
    with tarfile.open(tmp_path / "out/logs.tgz") as logs:
        names = {Path(name).stem for name in logs.getnames() if name.endswith(".log")}
    assert names == ({"build"} if told == "build=1" else _OTHERS | _FILES)


def test_a_wrong_call_is_told_how_it_is_used() -> None:
    done = subprocess.run(
        [ROOT / "tests/gpu/everything.sh"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "everything.sh FOLDER [SECONDS]" in done.stderr
