"""operators.py: curves, their best working points, and baselines, without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention.triton_kit.op import Work
from flash_lab.bench.store import read_store
from flash_lab.operators import operators_cli
from flash_lab.operators.baselines import PerformanceRegressionTester
from flash_lab.operators.cases import NAMES, Case, case
from tests.measured_operators.fake_timer import FakeTimer

H200 = {"gpu": "H200"}
QUIET = [1.0 + 0.001 * i for i in range(20)]


def made(name: str, n: int, dtype: torch.dtype, device: str) -> Case:
    if name == "gelu":
        raise RuntimeError("it does not run")
    return (n, n), lambda: None, Work(2 * n**3 if name == "matmul" else 0, 6 * n**2)


def run(tmp_path: Path, *argv: str, ms: float = 1.0) -> int:
    times = FakeTimer([ms * x for x in QUIET])
    given = ["--sizes", "64,128", *argv, "--baselines", str(tmp_path / "b.jsonl")]
    return operators_cli.main(given, times, made)


def test_a_slower_operator_is_a_regression_and_changes_no_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("--names", "softmax,matmul")
    assert run(tmp_path, *names) == 3
    assert capsys.readouterr().out.count("no baseline on such a GPU") == 4
    assert run(tmp_path, *names, "--update_baseline") == 0
    assert run(tmp_path, *names) == 0
    assert run(tmp_path, *names, ms=1.05) == 0
    capsys.readouterr()
    assert run(tmp_path, *names, ms=1.2) == 1
    assert capsys.readouterr().out.count("REGRESSION: +20.") == 4
    assert run(tmp_path, *names, "--threshold", "30", ms=1.2) == 0
    assert len(read_store(tmp_path / "b.jsonl").rows) == 4


def test_what_does_not_run_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--names", "gelu,relu", "--update_baseline") == 3
    assert "gelu, 64: RuntimeError: it does not run" in capsys.readouterr().err
    assert run(tmp_path, "--names", "gelu") == 4


def test_the_chart_and_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chart, out = tmp_path / "c.png", tmp_path / "o.json"
    given = ["--names", "softmax,matmul", "--sizes", "64,128,256"]
    files = ["--chart", str(chart), "--out", str(out)]
    assert operators_cli.main([*given, *files], FakeTimer(QUIET), made) == 0
    assert chart.read_bytes().startswith(b"\x89PNG")
    rows = json.loads(out.read_text())["results"]
    assert [row["shape"] for row in rows] == [[64, 64], [128, 128], [256, 256]] * 2
    assert all(len(row["samples_ms"]) == 20 for row in rows)
    # As fast at every size: the largest does most.
    lines = [x for x in capsys.readouterr().out.splitlines() if "best working point" in x]
    assert [line.split("|")[2].strip() for line in lines] == ["256x256"] * 2


@pytest.mark.parametrize(
    ("argv", "message"),
    [(["--update_baseline"], "needs --baselines"), (["--names", "sofmax"], "softmax"),
     (["--sizes", "0"], "--sizes")],
)  # fmt: skip
def test_usage(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        operators_cli.main(argv, FakeTimer(QUIET), made)
    assert message in capsys.readouterr().err


def test_a_file_that_is_no_store_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").mkdir()
    with pytest.raises(SystemExit, match="2"):
        run(tmp_path, "--update_baseline")


def test_other_gpus_and_damaged_lines_are_no_baseline(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    PerformanceRegressionTester(path, {"gpu": "A100"}).update_baseline({"relu": QUIET})
    tester = PerformanceRegressionTester(path, H200)
    assert tester.check_regression("relu", QUIET) == (False, "no baseline on such a GPU")
    tester.update_baseline({"relu": QUIET})
    tester.update_baseline({"relu": [2 * x for x in QUIET]})
    again = PerformanceRegressionTester(path, H200)  # the last one counts
    assert again.check_regression("relu", [2 * x for x in QUIET]).message.startswith("same: +0.0")
    path.write_bytes(path.read_bytes().replace(b'"relu"', b'"rely"'))
    damaged = PerformanceRegressionTester(path, H200)
    assert len(damaged.notes) == 3 and not damaged.baselines


def test_a_noisy_difference_is_no_regression(tmp_path: Path) -> None:
    """Times as these are as likely in either order: a mean alone would call the second slower."""
    tester = PerformanceRegressionTester(tmp_path / "b.jsonl", H200)
    tester.update_baseline({"relu": [1.0, 1.0, 1.5, 1.5] * 5})
    verdict = tester.check_regression("relu", [1.0, 1.0, 1.7, 1.7, 1.7, 1.7, 1.7, 1.7] * 2)
    assert verdict.ok and verdict.message.startswith("ambiguous")


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_is_a_case(name: str) -> None:
    n = 32
    shape, call, work = case(name, n, torch.float16, "cpu")
    result: Any = call()
    tensors = result if isinstance(result, tuple) else (result,)
    if name == "conv2d":
        assert shape == (16, 64, 2, 2) and work.flop == 2 * 16 * 4 * 64 * 64 * 9
        return
    made = sum(x.nbytes for x in tensors)
    n_inputs = 2 if name in ("vector_add", "matmul") else 1
    assert shape == (n, n) and work.n_bytes == n_inputs * 2 * n * n + made
    assert work.flop == (2 * n**3 if name == "matmul" else 0)
