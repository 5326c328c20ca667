"""tools/build/set_up.py: which torch pip is asked for, and where. A stand-in takes pip's place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
INDEX = "https://cpu.invalid/whl"

# Writes its arguments down, answers `config list`, and fails where the test says so.
PIP = """
import json, os, sys
if "config" in sys.argv:
    print(os.environ["FAKE_CONFIG"])
    sys.exit(0)
with open(os.environ["FAKE_LOG"], "a") as log:
    print(json.dumps(sys.argv[1:]), file=log)
sys.exit(os.environ["FAKE_FAILS"] in sys.argv)
"""


class Outcome(NamedTuple):
    code: int
    calls: list[list[str]]  # pip's arguments
    output: str


def set_up(
    tmp_path: Path, target: str = "run", *, config: str = "", fails: str = "nothing",
    gpu: bool = False, index: str = INDEX,
) -> Outcome:  # fmt: skip
    (tmp_path / "pip.py").write_text(PIP)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    if gpu:
        driver = bin_folder / "nvidia-smi"
        driver.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H200'\n")
        driver.chmod(0o755)
    log = tmp_path / "log"
    log.touch()
    environ = {
        **os.environ, "PYTHONPATH": str(tmp_path), "PATH": str(bin_folder),
        "FAKE_LOG": str(log), "FAKE_CONFIG": config, "FAKE_FAILS": fails,
    }  # fmt: skip
    command = [sys.executable, str(ROOT / "tools/build/set_up.py"), target]
    command += ["--torch", "torch==2.13.0", "--cpu-index", index]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    return Outcome(done.returncode, calls, done.stdout + done.stderr)


def test_without_a_gpu_the_cpu_build_comes_first(tmp_path: Path) -> None:
    code, (torch, rest), _ = set_up(tmp_path)
    assert code == 0
    assert torch[-3:] == ["--index-url", INDEX, "torch==2.13.0"]
    assert "--no-deps" in torch, "from that index torch is taken, and nothing else"
    assert "torch==2.13.0" in rest and INDEX not in rest


def test_where_the_cpu_build_cannot_be_had_pypis_is_taken_and_its_size_said(tmp_path: Path) -> None:
    code, (_, rest), output = set_up(tmp_path, fails=INDEX)
    assert code == 0 and "torch==2.13.0" in rest
    assert f"{INDEX} has none or cannot be reached" in output and "2.6 GB" in output


@pytest.mark.parametrize(
    "case",
    [
        {"gpu": True},
        {"index": ""},
        {"config": "global.find-links='/opt/wheels'"},
        {"config": ":env:.index-url='https://mirror.invalid/simple'"},
        {"config": "global.cert='/a/b'\ninstall.extra-index-url='https://x.invalid'"},
    ],
)
def test_no_index_is_added(tmp_path: Path, case: dict[str, object]) -> None:
    code, (only,), _ = set_up(tmp_path, **case)  # type: ignore[arg-type]
    assert code == 0 and "torch==2.13.0" in only and "--index-url" not in only


def test_other_settings_of_pip_are_no_place(tmp_path: Path) -> None:
    assert len(set_up(tmp_path, config="global.cert='/find-links=x'").calls) == 2


def test_pips_failure_is_a_failure(tmp_path: Path) -> None:
    assert set_up(tmp_path, fails="torch==2.13.0", index="").code == 1


def test_running_takes_less_than_testing(tmp_path: Path) -> None:
    names = {}
    for target in ("run", "test"):
        folder = tmp_path / target
        folder.mkdir()
        names[target] = set(set_up(folder, target).calls[-1])
    assert names["run"] < names["test"]
    assert not any(word.startswith("triton") for word in names["run"])
    assert any(word.startswith("triton") for word in names["test"])
