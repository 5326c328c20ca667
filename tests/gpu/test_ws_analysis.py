"""On a Hopper GPU: every mode of the WS analysis tool on small problems, from another folder."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flash_lab.bench.ncu_run import NcuError, find_ncu
from flash_lab.ws_analysis.providers import WS_PROVIDERS, bind

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools/benchmark/flash-attention-WS-hopper.py"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9,
        reason="needs a Hopper GPU",
    ),
]
PROVIDERS = ",".join(WS_PROVIDERS)


def tool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, TOOL, *arguments], cwd=folder, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    print(done.stdout, done.stderr)
    return done


def test_benchmark_and_analysis(tmp_path: Path) -> None:
    arguments = ["--n_ctx", "128,1024", "--provider", f"{PROVIDERS},cudnn"]
    arguments += ["--out", "rows.jsonl", "--num_repeats", "8", "--target_noise", "0"]
    assert tool(tmp_path, "--mode", "benchmark", *arguments).returncode == 0
    lines = list(csv.DictReader((tmp_path / "ws_results/benchmark.csv").open()))
    assert len(lines) == 2 * 5
    for line in lines:
        assert line["status"] == "ok"
        assert 0 < float(line["tflops"]) < 990  # of the data sheet
    done = tool(tmp_path, "--mode", "analysis", *arguments, "--resume")
    assert done.returncode == 0
    resources = done.stdout.partition("## Resource use")[2].partition("##")[0]
    for provider in WS_PROVIDERS:  # registers, blocks and waves of all four are known
        rows = [line for line in resources.splitlines() if line.startswith(f"| {provider} ")]
        assert len(rows) == 2
        assert all(int(row.split("|")[6]) >= 1 for row in rows)
    assert "Ceilings (measured)" in done.stdout


def test_ranges(tmp_path: Path) -> None:
    arguments = ("--n_ctx", "256", "--provider", f"{PROVIDERS},fa2")
    done = tool(tmp_path, "--mode", "nvtx", *arguments)
    assert done.returncode == 0
    table = [line.split("|") for line in done.stdout.splitlines() if line.startswith("| bench_")]
    assert len(table) == 5
    for _, _, calls, host, device, _ in table:
        assert int(calls) == 1
        assert float(host) > 0 and float(device) > 0
    events = json.loads((tmp_path / "nvtx_profile.trace.json").read_text())["traceEvents"]
    names = [event.get("name", "") for event in events]
    for provider in WS_PROVIDERS:
        assert f"bench_{provider}_B1_H32_N256_D128" in names
    assert "attention_ws_B1_H32_N256_D128" in names
    assert "attention_ws_pp_B1_H32_N256_D128" in names
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert len(kernels) >= 5 * 5  # five calls of five providers, and nothing of tuning or checks
    assert len(kernels) <= 5 * 5 + 5


@pytest.mark.parametrize("provider", WS_PROVIDERS)
def test_one_launch_is_one_kernel(provider: str, tmp_path: Path) -> None:
    """What a profile without a filter holds."""
    arguments = ("--mode", "ncu", "--n_ctx", "128", "--provider", provider)
    assert tool(tmp_path, *arguments, "--prepare").returncode == 0
    try:
        ncu = find_ncu(None)
    except NcuError as error:
        pytest.skip(str(error))
    profile = tmp_path / "p.ncu-rep"
    command = [str(ncu), "--clock-control", "none", "-o", str(profile), "--force-overwrite"]
    done = subprocess.run(
        [*command, sys.executable, str(TOOL), *arguments], cwd=tmp_path, capture_output=True,
        text=True, timeout=600, check=False,
    )  # fmt: skip
    if "ERR_NVGPUCTRPERM" in done.stdout or "LibraryNotLoaded" in done.stdout:
        pytest.skip("ncu cannot read the counters here")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("==PROF== Profiling") == 1, done.stdout
    assert tool(tmp_path, "--mode", "ncu", "--report", str(profile)).returncode == 0


@pytest.mark.parametrize("n_ctx", [1, 100, 257])
@pytest.mark.parametrize("provider", WS_PROVIDERS)
@pytest.mark.parametrize("causal", [False, True])
def test_what_is_bound_is_right(provider: str, n_ctx: int, causal: bool, seed: int) -> None:
    from flash_helpers.base.dtypes import DType
    from flash_helpers.kernels.problem import AttentionProblem
    from flash_lab.ws_analysis.checking import judge_of

    problem = AttentionProblem.self_attention(DType.FP16, 2, n_ctx, 4, 128, causal=causal)
    tensors = problem.tensors(seed, "cuda")
    judge = judge_of(tensors, causal, heads=4)
    out = judge.poisoned()
    bound = bind(provider, tensors, out, causal, tune=False)
    assert judge.problem_with(bound.run()) == ""
    assert bool(out.isfinite().all())  # it wrote where it was told to
