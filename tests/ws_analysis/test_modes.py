"""The tool from the outside, on a backend without a GPU: benchmark, analysis, and usage."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flash_lab.bench.store import read_store
from flash_lab.ws_analysis import cli
from flash_lab.ws_analysis.providers import PROVIDERS

TOOL = Path(__file__).resolve().parents[2] / "tools/benchmark/flash-attention-WS-hopper.py"
BACKEND = "tests.ws_analysis.fake_backend:WsFakeBackend"
QUICK = ("--num_repeats", "8", "--target_noise", "0")
PNGS = ["bandwidth.png", "tflops.png", "time.png"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def faults(monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
    named = {name.replace("_", "-"): fault for name, fault in found.items()}
    monkeypatch.setenv("FAKE_FAULTS", json.dumps(named))


def run(*arguments: str) -> int:
    more = ("--no_ceilings",) if "analysis" in arguments else ()
    return cli.main([*arguments, "--out", "rows.jsonl", *QUICK, *more], BACKEND)


def test_benchmark(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--mode", "benchmark") == 0
    shown = capsys.readouterr().out
    for n_ctx in (128, 8192):  # the four configurations of the seed
        for provider in ("triton-ws-fp16", "triton-ws-pp-fp16"):
            title = f"AutoTune best configuration - {provider}\nshape: BATCH=1, H=32, N_CTX={n_ctx}"
            assert title in shown
    assert "cold L2 cache" in shown
    results = folder / "ws_results"
    assert sorted(path.name for path in results.glob("*.png")) == PNGS
    for path in results.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 10_000
    lines = list(csv.DictReader((results / "benchmark.csv").open()))
    assert {(line["provider"], line["n_ctx"]) for line in lines} == {
        (provider, n) for provider in PROVIDERS for n in ("128", "8192")
    }
    for line in lines:
        seconds, n = float(line["time_ms"]) / 1e3, int(line["n_ctx"])
        assert float(line["tflops"]) == pytest.approx(
            4 * 32 * n * n * 128 / seconds / 1e12, rel=0.01
        )
        assert float(line["memory_mb"]) == pytest.approx(2**20 / 1e6)
        assert ("BLOCK_M=128" in line["configuration"]) == ("ws" in line["provider"])


def test_benchmark_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--mode", "benchmark", "--lang", "zh", "--n_ctx", "128")
    assert run(*arguments, "--provider", "triton-ws-pp-fp16") == 0
    shown = capsys.readouterr().out
    for heading in (
        "AutoTune 最佳配置信息 - triton-ws-pp-fp16", "形状: BATCH=1, H=32, N_CTX=128, HEAD_DIM=128",
        "最佳配置参数:", "## 性能指标", "执行时间 (ms)", "内存带宽 (GB/s)", "内存使用 (MB)",
    ):  # fmt: skip
        assert heading in shown, heading


def test_another_shape(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ("--batch", "2", "--heads", "16", "--head_dim", "64", "--n_ctx", "256", "--causal")
    assert run("--mode", "benchmark", *shape, "--provider", "cuda-ws-fp16") == 0
    assert "BATCH=2, H=16, N_CTX=256, HEAD_DIM=64" in capsys.readouterr().out
    (row,) = read_store(Path("rows.jsonl")).finished()
    assert row.problem.causal is True


def test_analysis(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_SPEEDS", '{"triton-ws-fp16|": 2.0, "triton-ws-pp-fp16|": 1.6}')
    arguments = ("--mode", "analysis", "--out", "rows.jsonl", "--num_repeats", "12")
    assert cli.main([*arguments, "--target_noise", "0"], BACKEND) == 0
    shown = capsys.readouterr().out
    for heading in (
        "Performance", "Speedup: pipelined (PP) over WS", "Scaling efficiency: long over short",
        "Resource use", "Achieved against the roofline", "Pipeline efficiency",
    ):  # fmt: skip
        assert f"## {heading}" in shown
    assert "triton-ws-pp-fp16 takes 1/1.2" in shown
    assert "faster." in shown
    assert "no profiles in ncu_results: ncu_analysis.sh makes them" in shown
    assert "Ceilings (measured)" in shown
    names = sorted(path.name for path in (folder / "ws_results").iterdir())
    assert names == ["bandwidth.png", "roofline.png", "tflops.png", "time.png"]


def test_a_ceiling_that_fails_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_FAULTS", '{"matmul": "exit"}')
    arguments = ("--mode", "analysis", "--out", "rows.jsonl", "--n_ctx", "128", *QUICK)
    assert cli.main([*arguments, "--provider", "fa2"], BACKEND) == 3
    shown = capsys.readouterr().out
    assert "launch_fail: ceiling matmul 4096 (FP16): the worker exited with code 7" in shown
    assert "against the roofline" not in shown


def test_analysis_in_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--mode", "analysis", "--lang", "zh") == 0
    shown = capsys.readouterr().out
    for heading in ("# 对比分析", "加速比", "扩展效率", "资源利用率", "Pipeline效率"):
        assert heading in shown
    assert "Roofline" not in shown  # --no_ceilings


def test_the_analysis_of_a_benchmark_measures_nothing_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = folder / "log"
    monkeypatch.setenv("FAKE_LOG", str(log))
    assert run("--mode", "benchmark") == 0
    checks = len(log.read_text().splitlines())
    assert checks == 2 * 2 * len(PROVIDERS)  # before and after, on two lengths
    assert run("--mode", "analysis", "--resume") == 0
    assert len(log.read_text().splitlines()) == checks


def test_recorded_rows_are_shown_without_a_gpu(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run("--mode", "benchmark", "--batch", "2", "--n_ctx", "256") == 0
    first = capsys.readouterr().out
    assert run("--mode", "benchmark", "--n_ctx", "128,1024", "--resume") == 0
    first = capsys.readouterr().out
    recorded = ("--rows", "rows.jsonl", "--results", "again")
    assert cli.main(["--mode", "benchmark", *recorded]) == 0  # by the real backend's name
    again = capsys.readouterr().out
    assert f"{len(PROVIDERS)} rows of other shapes are left out" in again
    for line in (line for line in first.splitlines() if line.startswith(("|", "  ", "AutoTune"))):
        assert line in again
    assert sorted(path.name for path in (folder / "again").glob("*.png")) == PNGS
    assert cli.main(["--mode", "analysis", *recorded]) == 0
    assert "takes 1/" in capsys.readouterr().out
    Path("rows.jsonl").write_text("")
    assert cli.main(["--mode", "benchmark", *recorded]) == 2
    assert "no row in it is about attention" in capsys.readouterr().err
    assert cli.main(["--mode", "benchmark", "--rows", "absent.jsonl"]) == 2
    assert "cannot use absent.jsonl" in capsys.readouterr().err


def test_a_wrong_kernel_has_no_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    faults(monkeypatch, triton_ws_pp="wrong but fast")
    assert run("--mode", "benchmark", "--n_ctx", "128") == 1
    shown = capsys.readouterr().out
    assert "triton-ws-pp-fp16: wrong: 5 of 8 rows are wrong" in shown
    assert "AutoTune best configuration - triton-ws-pp-fp16" not in shown
    assert "AutoTune best configuration - triton-ws-fp16" in shown


@pytest.mark.parametrize(
    ("fault", "named", "code"),
    [("raises", False, 3), ("absent", False, 0), ("absent", True, 3), ("exit", False, 3)],
)
def test_what_fails_is_said(
    fault: str, named: bool, code: int,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    faults(monkeypatch, fa4=fault)
    chosen = ("--provider", "fa4,cudnn") if named else ()
    assert run("--mode", "benchmark", "--n_ctx", "128", *chosen) == code
    assert "N_CTX=128: fa4: " in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["benchmark", "analysis"])
def test_nothing_measured(
    mode: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    faults(monkeypatch, cudnn="absent")
    assert run("--mode", mode, "--provider", "cudnn") == 4
    shown = capsys.readouterr().out
    assert "no data: no provider could be measured" in shown
    assert "cudnn: skipped: not installed" in shown
    assert not (folder / "ws_results").exists()


def test_a_folder_that_cannot_be_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "ws_results").write_text("a file")
    assert run("--mode", "benchmark", "--n_ctx", "128", "--provider", "fa2") == 2
    assert "cannot write ws_results" in capsys.readouterr().out


def test_without_matplotlib_the_plots_are_missing_and_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run("--mode", "benchmark", "--n_ctx", "128", "--provider", "fa2") == 3
    shown = capsys.readouterr().out
    assert "tflops.png is not drawn" in shown
    assert "pip install matplotlib" in shown
    assert "benchmark.csv: " in shown


# --- usage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--mode benchmrk", "mode 'benchmrk' is not known: expected create_scripts, benchmark, "
         "analysis, nvtx, ncu; the nearest is benchmark"),
        ("", "--mode"),
        ("--mode benchmark --provider triton-pp-fp16", "the nearest is triton-ws-pp-fp16"),
        ("--mode benchmark --lang fr", "language 'fr' is not known: expected en, zh"),
        ("--mode benchmark --n_ctx 0", "'0' is not a positive integer"),
        ("--mode benchmark --n_ctx 128,x", "'x' is not a positive integer"),
        ("--mode ncu", "name it with --n_ctx and --provider"),
        ("--mode ncu --n_ctx 128,8192 --provider cudnn", "launches one configuration"),
        ("--mode benchmark --prepare", "--prepare is for --mode ncu, not for --mode benchmark"),
        ("--mode ncu --trace t.json --prepare", "--trace is for --mode nvtx"),
        ("--mode nvtx --noncu", "--noncu is for --mode benchmark and analysis"),
        ("--mode create_scripts --num_repeats 4", "--num_repeats is for --mode benchmark"),
        ("--mode benchmark --no_ceilings", "--no_ceilings is for --mode analysis"),
        ("--mode ncu --log x --prepare", "--log is what ncu printed"),
        ("--mode benchmark --resume", "need --out"),
        ("--mode nvtx --rows x", "for --mode benchmark and analysis, not for --mode nvtx"),
        ("--mode benchmark --rows x --n_ctx 128", "have no part in it"),
        ("--mode benchmark --graph", "--graph needs --noncu"),
        ("--mode benchmark --num_repeats 4 --max_repeats 2", "max_repeats 2 is less"),
    ],
)  # fmt: skip
def test_usage(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments.split(), BACKEND)
    assert caught.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "arguments",
    ["--mode benchmark", "--mode analysis", "--mode nvtx", "--mode ncu --prepare",
     "--mode ncu --n_ctx 128 --provider triton-ws-fp16"],
)  # fmt: skip
def test_without_a_gpu(
    arguments: str, folder: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main(arguments.split()) == 4
    said = capsys.readouterr()
    assert "no data: " in said.err
    assert "torch sees no CUDA device" in said.err
    assert not list(folder.iterdir())


def test_the_command_without_a_gpu(folder: Path) -> None:
    """As a user calls it, from another folder."""
    done = subprocess.run(
        [sys.executable, str(TOOL), "--mode", "benchmark"], cwd=folder, capture_output=True,
        text=True, timeout=600, check=False, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode == 4
    assert "no data: --mode benchmark" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(folder.iterdir())
