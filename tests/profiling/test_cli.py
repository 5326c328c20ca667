"""The commands of `profiling.py`: they run, they write what they say, and refuse what they must."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from flash_helpers.base.tool import guarded
from flash_lab.profiling import workloads
from flash_lab.profiling.cli import main

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--batch", "1", "--seq_len", "32", "--heads", "2", "--d_head", "16", "--num_layers", "2"]


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small heads are for no kernel of ours."""
    monkeypatch.setattr(workloads, "get_device", lambda: torch.device("cpu"))


def test_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    names = list(workloads.EXAMPLES)
    assert main(["benchmark", *names, *SMALL, "--num_trials", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == names
    assert all(re.fullmatch(r"\w+: \d+\.\d{4} ms \(mean of 2\)", line) for line in lines)


def test_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--with_stack", "--out_dir", str(tmp_path)]
    assert main(["profile", "block", "mlp", *SMALL, *arguments]) == 0
    output = capsys.readouterr().out
    assert "## block" in output and "aten::" in output
    for name in ("stacks_block.txt", "stacks_block.svg", "stacks_mlp.txt", "stacks_mlp.svg"):
        assert str(tmp_path / name) in output and (tmp_path / name).stat().st_size > 1000
    block, mlp = ((tmp_path / f"stacks_{name}.txt").read_text() for name in ("block", "mlp"))
    for module in ("norms.0", "qkv", "attention", "project", "mlp.2"):
        assert f";{module};" in block
    for module in ("layers.1", "layers.1.backward"):
        assert f";{module}" in mlp


def test_a_function_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_profiled_module.py").write_text(
        "def run():\n    pass\nnumber = 3\ndef absent():\n    open('absent file')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark", "my_profiled_module:run"]) == 0
    assert "my_profiled_module:run: " in capsys.readouterr().out
    assert "" not in sys.path
    # An error of its own is not one of --out_dir.
    with pytest.raises(FileNotFoundError, match="absent file"):
        main(["profile", "my_profiled_module:absent"])
    for wrong, says in (
        ("my_profiled_module:number", "is an int: expected a function"),
        ("my_profiled_module:other", "cannot be imported"),
        ("no_such_module:run", "cannot be imported"),
        ("atention", "the nearest is attention"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["benchmark", wrong])
        assert stopped.value.code == 2 and says in capsys.readouterr().err


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (
        [], ["nonsense"], ["benchmark"], ["mlp", "--dim", "0"], ["profile", "mlp", "--batch", "x"],
        ["profile", "matmul", *SMALL, "--with_stack", "--out_dir", "/proc/none"],
    ):  # fmt: skip
        with pytest.raises(SystemExit) as stopped:
            main(wrong)
        assert stopped.value.code == 2
        assert "error: " in capsys.readouterr().err


def test_both_entries() -> None:
    """As a script from any folder, and as a module; the MLP runs."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "py")}
    mlp = ["mlp", "--dim", "8", "--num_layers", "1", "--batch_size", "2", "--num_steps", "2"]
    script = [sys.executable, str(ROOT / "tools/benchmark/profiling.py"), *mlp]
    done = subprocess.run(script, cwd="/", capture_output=True, text=True, check=True)
    assert "2 steps on " in done.stdout or "steps between cudaProfilerStart" in done.stdout
    for module in ("flash_lab.profiling", "flash_helpers.profiling"):
        done = subprocess.run(
            [sys.executable, "-m", module, "waves", "--blocks", "9", "--sms", "9"],
            cwd="/", env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "9 blocks on 9 SMs" in done.stdout


def test_an_interruption_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str, size: workloads.Size) -> workloads.Run:
        raise KeyboardInterrupt

    monkeypatch.setattr("flash_lab.profiling.calls_cli.find", interrupted)
    assert guarded("profiling.py", partial(main, ["benchmark", "mlp"])) == 130
