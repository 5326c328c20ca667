"""benchmark_matmul.py without a GPU: its rows, its file, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flash_attention.triton_kit.launched import Launched, noting
from flash_lab.operators import matmul_cli
from flash_lab.operators.matmul_cli import COLUMNS, NAMES, Shape, Versions, main, versions
from tests.measured_operators.fake_timer import FakeTimer

SHAPE = "64x48x32"
TARGET = SimpleNamespace(arch=90)
KERNEL = SimpleNamespace(n_regs=128, metadata=SimpleNamespace(shared=0, num_warps=8, target=TARGET))


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(matmul_cli, "COPIED", 1000)


def fake_versions(shape: Shape, dtype: torch.dtype, device: str) -> Versions:
    """The real tensors and answers, without our kernels; v1 says what it takes of an SM."""
    found = versions(shape, dtype, device)

    def noted_product() -> torch.Tensor:
        launches = noting()
        assert launches is not None
        launches.append(Launched(KERNEL, (1, 1, 1), (), ()))
        return found["cublas"][0]()

    def first() -> torch.Tensor:
        return found["cublas"][0]() if noting() is None else noted_product()

    right = {name: (lambda y=y: y.to(dtype), y) for name, (_, y) in found.items()}
    return found | right | {"v1": (first, found["v1"][1]), "cublas": found["cublas"]}


def run(
    tmp_path: Path, *more: str, make: Any = fake_versions, times: tuple[float, ...] = (0.5,)
) -> tuple[int, Any]:
    out = tmp_path / "matmul_results.json"
    code = main(["--shapes", SHAPE, "--out", str(out), *more], FakeTimer(times), make)
    return code, json.loads(out.read_text()) if out.exists() else None


def test_every_version_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(tmp_path)
    rows = {row["version"]: row for row in found["results"]}
    assert code == 0 and tuple(rows) == NAMES
    row = rows["v1"]
    assert (row["shape"], row["dtype"], row["ms"]) == ([64, 48, 32], "float16", 0.5)
    assert row["flop"] == 2 * 64 * 48 * 32 and row["gflops"] == pytest.approx(row["flop"] / 5e5)
    assert row["bytes"] == 2 * (64 * 32 + 32 * 48 + 64 * 48)
    assert (row["registers"], row["occupancy"]) == (128, 0.25)
    assert row["times"]["n"] == 20
    assert "registers" not in rows["cublas"]
    assert found["ceilings"]["peak_tflops"] == rows["cublas"]["gflops"] / 1e3
    assert found["ceilings"]["bandwidth_tb_s"] == pytest.approx(2000 / 0.5 / 1e9)
    printed = capsys.readouterr().out
    assert all(column in printed for column in COLUMNS) and "CUDA_LAUNCH_BLOCKING" in printed


def test_a_wrong_version_is_not_timed(tmp_path: Path) -> None:
    def make(*given: Any) -> Versions:
        found = fake_versions(*given)
        wrong = found["cublas"][0]().clone()
        wrong[3, 5] += 1  # one element
        return found | {"v2": (lambda: wrong, found["v2"][1])}

    code, found = run(tmp_path, "--versions", "v2,cublas", make=make)
    assert code == 1 and found["results"][0]["status"] == "wrong"
    assert "ms" not in found["results"][0] and "ms" in found["results"][1]


def test_a_version_that_does_not_run_costs_only_itself(tmp_path: Path) -> None:
    def make(*given: Any) -> Versions:
        return fake_versions(*given) | {"v5": versions(*given)["v_auto"]}  # refused on the CPU

    code, found = run(tmp_path, "--versions", "v5,cublas", make=make)
    assert code == 3 and found["results"][0]["status"] == "launch_fail"
    assert "only a GPU can be tuned for" in found["results"][0]["notes"]
    code, found = run(tmp_path, "--versions", "v5", make=make)
    assert code == 4 and found["ceilings"]["peak_tflops"] is None


def test_noise_is_said(tmp_path: Path) -> None:
    _, found = run(tmp_path, "--versions", "cublas", times=(1.0, 1.5))
    assert found["results"][0]["notes"] == "rsd 20%" and found["results"][0]["times"]["n"] == 100


def test_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in ("64x48", "0x1x1", "64x48x32,", "axbxc"):
        with pytest.raises(SystemExit, match="2"):
            run(tmp_path, "--shapes", wrong)
        assert "expected MxNxK" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        run(tmp_path, "--versions", "v6")
    assert main(["--out", str(tmp_path / "x.json")]) == 4
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    with pytest.raises(SystemExit, match="2"):
        run(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_our_kernel_in_the_emulator(tmp_path: Path) -> None:
    _, found = run(tmp_path, "--versions", "v2", make=versions)
    assert found["results"][0]["status"] == "ok"
