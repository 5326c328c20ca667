"""The tuner with the fake backend: passes, winners, ties, table, faults."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from flash_attention.tuning_table import read_table
from flash_helpers.base.dtypes import DType
from flash_helpers.kernel_configs import get_kernel_configs, parse_sm80_name
from flash_helpers.kernels.architecture import SHARED_MEMORY_PER_BLOCK
from flash_helpers.kernels.problem import AttentionProblem
from flash_lab.bench.autotune_cli import main
from flash_lab.bench.objective import Objective
from flash_lab.bench.results import Measurement
from flash_lab.bench.row import Row
from flash_lab.bench.store import read_store
from flash_lab.bench.sweep import make_case
from flash_lab.bench.tuning import best_by_blocks, prune, ranges, ties

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BACKEND = "fake_backend:FakeBackend"
FP16 = [c.short_form() for c in get_kernel_configs("tune") if c.dtype is DType.FP16]
FAST = next(k for k in FP16 if k.startswith("(FP16, 128, 128, 64, 4)"))
NEAR = next(k for k in FP16 if k.startswith("(FP16, 128, 128, 32, 4)"))


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'py'}:{HERE}")
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    speeds = {f"{FAST}|": 0.5, f"{NEAR}|": 0.53}
    monkeypatch.setenv("FAKE_SPEEDS", json.dumps(speeds))


def tune(tmp_path: Path, *arguments: str) -> int:
    out = ["--out", str(tmp_path / "rows.jsonl"), "--table", str(tmp_path / "table.json")]
    quick = ["--kernels", "tune", "--no_build", "--final", "24", "--no_ceilings"]
    return main([*quick, *out, *arguments], BACKEND)


def test_the_fastest_wins_and_the_table_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(tmp_path, "--seq_lens", "512,2048", "--dtypes", "fp16") == 0
    output = capsys.readouterr().out
    assert output.count(f": {FAST}: 0.") == 2 and "2 entries written to" in output
    entries = read_table(tmp_path / "table.json")
    assert [(e.seq_min, e.seq_max) for e in entries] == [(1, 1024), (1025, None)]
    for entry in entries:
        assert entry.kernels[0] == FAST and entry.gpu == "Fake GPU"
        assert entry.evidence["build_fingerprint"] == "feed"
        blocks = {(c.B_r, c.B_c) for c in map(parse_sm80_name, entry.kernels)}
        assert blocks == {(128, 64), (128, 32), (64, 64), (64, 32)}
    stages: dict[str, int] = {}
    for row in read_store(tmp_path / "rows.jsonl").finished():
        stages[row.stage] = stages.get(row.stage, 0) + 1
    assert stages["coarse"] == 80 and stages["fine"] < 40 and 2 * 2 <= stages["final"] <= 2 * 6


def test_a_second_run_resumes_every_pass(tmp_path: Path) -> None:
    arguments = ["--seq_lens", "512", "--dtypes", "fp16"]
    assert tune(tmp_path, *arguments) == 0
    (tmp_path / "log").unlink()
    assert tune(tmp_path, *arguments, "--resume") == 0
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(("fault", "code"), [("wrong but fast", 1), ("exit", 3), ("hang", 3)])
def test_a_faulty_kernel_never_wins(
    fault: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({f"{FAST}|": fault}))
    arguments = ["--seq_lens", "512", "--dtypes", "fp16"]
    arguments += ["--time_limit", "5"] if fault == "hang" else []
    assert tune(tmp_path, *arguments) == code
    assert f": {FAST} at 512: " in capsys.readouterr().out
    (entry,) = read_table(tmp_path / "table.json")
    assert FAST not in entry.kernels


def test_without_a_right_kernel_there_is_no_winner_and_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({"load": "wrong but fast"}))
    assert tune(tmp_path, "--seq_lens", "512", "--dtypes", "fp16") == 4
    assert not (tmp_path / "table.json").exists()


def measurement(kernel: str, center: float, seed: int) -> Measurement:
    chance = random.Random(seed)
    samples = [center * chance.lognormvariate(0, 0.02) for _ in range(24)]
    return Measurement((Row("ok", "ours", kernel, samples_ms=samples, bursts=[1] * 24),))


def test_ties_are_what_the_winner_does_not_surely_beat() -> None:
    ranked = [
        measurement("best", 1.0, 1), measurement("equal", 1.002, 2), measurement("slow", 1.06, 3),
    ]  # fmt: skip
    assert ties(ranked, Objective()) == ["equal"]
    assert ties(ranked[:1], Objective()) == []


def test_a_winner_is_rarely_sure_among_equals() -> None:
    """The median that happens to be lowest is chosen after the fact; the test allows for chance."""
    sure = 0
    for round_ in range(200):
        equals = [measurement(name, 1.0, 7 * round_ + i) for i, name in enumerate("abcd")]
        equals.sort(key=lambda m: m.summary.median)
        sure += not ties(equals, Objective())
    assert sure <= 10


def test_what_the_gpu_cannot_hold_is_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHARED_MEMORY_PER_BLOCK, (8, 6), 70 * 1024)
    configs = get_kernel_configs("progall")
    problem = AttentionProblem.self_attention(DType.FP16, 1, 512, 1, 128)
    case = make_case(problem, 1, configs, ["ours"])
    assert prune(case, "9.0") == case
    small = prune(case, "8.6")
    assert 0 < len(small.ours) < len(case.ours)
    assert all("bytes of shared memory" in reason for _, reason in small.skipped)
    kept = [parse_sm80_name(job.kernel) for job in small.ours]
    assert max(config.smem_bytes() for config in kept) <= 70 * 1024


def test_earlier_steps_are_no_candidates() -> None:
    problem = AttentionProblem.self_attention(DType.FP16, 1, 512, 1, 128)
    kept = prune(make_case(problem, 1, get_kernel_configs("previous"), ["ours"]), "9.0")
    assert [job.kernel for job in kept.ours] == [get_kernel_configs("previous")[-1].short_form()]
    assert "It is step 8 of previous_kernels/." in [reason for _, reason in kept.skipped]


def test_ranges_meet_and_have_no_end() -> None:
    assert ranges([512]) == [(1, None)]
    assert ranges([512, 1024, 4096]) == [(1, 724), (725, 2048), (2049, None)]


def test_the_fastest_of_every_block_shape() -> None:
    found = [measurement(kernel, 1.0 + i, i) for i, kernel in enumerate(FP16)]
    kernels = best_by_blocks(found)
    assert kernels[0] == FP16[0] and len(kernels) == 4


def test_the_script_passes_its_arguments_on(tmp_path: Path) -> None:
    script = ROOT / "tools/benchmark/benchmark_autotune.sh"
    echo = tmp_path / "python"
    echo.write_text('#!/bin/sh\necho "$KERNELS $@"\n')
    echo.chmod(0o755)
    environ = {"PYTHON": str(echo), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [script, "--seq_lens", "512"], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "tune tools/benchmark/autotune.py --seq_lens 512\n"
