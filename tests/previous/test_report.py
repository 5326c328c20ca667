"""The page about the steps, from a made-up sweep whose figures are known."""

from __future__ import annotations

import csv
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.base.paths import previous_dir
from flash_helpers.kernels.flops import calc_matmul_flop
from flash_helpers.kernels.history import load_steps
from flash_lab.bench.records import encode
from flash_lab.sass.steps import programs
from flash_lab.steps_report import cli, data, page

ROOT = Path(__file__).resolve().parents[2]
STEPS = load_steps()
LENGTHS = (512, 4096, 16384)
FA2 = {512: 250.0, 4096: 300.0, 16384: 320.0}


def tflops_of(step: int, length: int) -> float:
    return 50.0 + 20.0 * step + length / 1024


def record(kernel: str, provider: str, length: int, tflops: float) -> bytes:
    ms = calc_matmul_flop(16, 16, length, length, 128, False) / tflops / 1e9
    shape = {
        "dtype": "FP16", "batch": 16, "n_heads": 16, "n_kv_heads": 16, "seq_len": length,
        "d_head": 128, "causal": False, "seed": 1,
    }  # fmt: skip
    row: dict[str, Any] = {
        "status": "ok", "key": f"{kernel}-{length}", "kernel": kernel, "provider": provider,
        "shape": shape, "samples_ms": [ms] * 4, "bursts": [2, 2], "policy": {},
        "environment": {"gpu": "Made-up GPU", "commit": "abc"}, "environment_fingerprint": "1",
    }  # fmt: skip
    return encode(row)


def write_sweep(path: Path, leave_out: tuple[int, int] | None = None) -> Path:
    lines = [record("fa2", "fa2", length, FA2[length]) for length in LENGTHS]
    for step in STEPS:
        for length in LENGTHS:
            if (step.number, length) != leave_out:
                tflops = tflops_of(step.number, length)
                lines.append(record(step.config.short_form(), "ours", length, tflops))
    path.write_bytes(b"".join(lines))
    return path


def write_ncu(path: Path, drop_column: str = "") -> Path:
    columns = ["symbol", "status", "seq_len", "batch", "n_heads", "d_head", *data.NCU_COLUMNS]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(
            file, [c for c in columns if c != drop_column], extrasaction="ignore"
        )
        writer.writeheader()
        for step in STEPS:
            writer.writerow({
                "symbol": step.config.kernel_name(), "status": "ok", "seq_len": 1024, "batch": 1,
                "n_heads": 16, "d_head": 128, "smsp__inst_executed.sum": 10_000_000 - step.number,
                "smsp__inst_executed_op_ldsm.sum": 1_000_000,
                "load_bank_conflicts": 28_000_000 if step.number == 1 else 0, "bank_conflicts": 7,
                "tensor_pipe_pct": 10 + step.number, "occupancy_pct": 12.5, "duration_ns": 1000,
            })  # fmt: skip
    return path


def facts(tmp_path: Path) -> list[data.StepFacts]:
    speeds, _ = data.read_speeds(write_sweep(tmp_path / "sweep.jsonl"))
    counters, _ = data.read_counters(write_ncu(tmp_path / "ncu.csv"))
    return data.join(programs(), speeds, counters)


def test_figures_are_those_of_the_sweep(tmp_path: Path) -> None:
    found = facts(tmp_path)
    assert len(found) == 16
    ninth, eighth = found[8], found[7]
    assert ninth.speed is not None
    assert ninth.speed.percent() == pytest.approx(100 * tflops_of(9, 4096) / 300)
    expected = statistics.harmonic_mean([tflops_of(9, n) for n in LENGTHS])
    assert ninth.speed.harmonic_mean == pytest.approx(expected)
    yardstick = statistics.harmonic_mean(FA2.values())
    assert ninth.speed.harmonic_percent == pytest.approx(100 * expected / yardstick)
    gain = 100 * (tflops_of(9, 4096) / tflops_of(8, 4096) - 1)
    assert ninth.gain(eighth) == pytest.approx(gain)
    assert ninth.predecessor_gain(eighth, "a100") == pytest.approx(100 * (95.3 / 87.8 - 1))


def test_the_page_has_a_row_and_a_note_for_every_step(tmp_path: Path) -> None:
    found = facts(tmp_path)
    where = dict.fromkeys(("gpu", "driver", "power_limit", "cuda", "torch", "lengths"), "x")
    text = page.render_page(found, {**where, "architecture": "sm_90a", "ncu_problem": "seq 1024"})
    rows = re.findall(r"^\| (\d+) \|(.*)\|$", text, re.M)
    assert [int(number) for number, _ in rows] == list(range(1, 17))
    cells = [cell.strip() for cell in rows[8][1].split("|")]
    assert cells[1] == f"{tflops_of(9, 4096):.0f}" and cells[2] == "+9.3 %"
    assert len(re.findall(r"^\* \*\*Gain\.\*\* [+-]", text, re.M)) == 15
    assert len(re.findall(r"^\* \*\*ncu\.\*\*", text, re.M)) == 15
    ratio = tflops_of(16, 4096) / tflops_of(1, 4096)
    assert f"{ratio:.2f} times step 1 at sequence 4096" in text
    largest = re.findall(r"^\d\. \*\*Step (\d+), ", text, re.M)
    assert largest == ["2", "3", "4"]  # equal steps on a growing base
    assert [page.conflicts_per_load(f) for f in found] == [28.0] + [0.0] * 15


def test_without_a_sweep_nothing_is_claimed() -> None:
    text = page.render_page(data.join(programs()), {"architecture": "sm_90a"})
    assert "TFLOP/s at" not in text and "times step 1" not in text
    assert "Speeds are not in this version" in text
    assert not re.search(r"\bTODO\b|\bTBD\b|pending|\?\?", text)


def test_a_gap_in_the_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(data.ReportError, match="no result of step 5 at 4096"):
        data.read_speeds(write_sweep(tmp_path / "gap.jsonl", leave_out=(5, 4096)))
    with pytest.raises(data.ReportError, match="smsp__inst_executed"):
        data.read_counters(write_ncu(tmp_path / "ncu.csv", "smsp__inst_executed.sum"))
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(data.ReportError, match="step 1 at 4096"):
        data.read_speeds(tmp_path / "empty.jsonl")
    with pytest.raises(data.ReportError, match="cannot read"):
        data.read_counters(tmp_path / "absent.csv")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    tool = ROOT / "tools/analysis/steps_report.py"
    return subprocess.run(
        [sys.executable, tool, *arguments], capture_output=True, text=True, env=dict(os.environ),
    )  # fmt: skip


def test_one_command_writes_page_and_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    sweep, ncu = write_sweep(tmp_path / "s.jsonl"), write_ncu(tmp_path / "n.csv")
    pictures = []
    for name in ("a", "b"):
        done = run("--sweep", sweep, "--ncu", ncu, "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
        pictures.append((tmp_path / name / "steps.svg").read_bytes())
    assert pictures[0] == pictures[1] and pictures[0].count(b"16 the live kernel") == 1
    text = (tmp_path / "a" / "README.md").read_text()
    assert "Measured on Made-up GPU" in text and "![percent" in text


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    gap = write_sweep(tmp_path / "gap.jsonl", leave_out=(5, 512))
    assert cli.main(["--sweep", str(gap), "--out", str(tmp_path)]) == 4
    assert "step 5 at 512" in capsys.readouterr().err
    assert not (tmp_path / "README.md").exists()
    with pytest.raises(SystemExit) as error:
        cli.main(["--ncu", str(gap)])
    assert error.value.code == 2


STAND_IN = """#!/bin/sh
echo "$KERNELS: $*" >> "$LOG"
case "$*" in *pt_bench*) exit ${PT:-0};; *ncu_bench*) echo csv; exit ${NCU_CODE:-0};; esac
"""


@pytest.mark.parametrize(
    ("codes", "expected"),
    [({}, 0), ({"PT": "3"}, 3), ({"NCU_CODE": "4"}, 4), ({"PT": "1", "NCU_CODE": "4"}, 1)],
)
def test_the_sweep_script(tmp_path: Path, codes: dict[str, str], expected: int) -> None:
    """Builds, times and counts in this order, and tells what failed; a stand-in for Python."""
    python = tmp_path / "python"
    python.write_text(STAND_IN)
    python.chmod(0o755)
    environ = {**os.environ, "PYTHON": str(python), "LOG": str(tmp_path / "log"), **codes}
    script = ROOT / "tools/benchmark/benchmark_steps.sh"
    done = subprocess.run([script, tmp_path / "out"], env=environ, check=False)
    assert done.returncode == expected
    calls = (tmp_path / "log").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["previous:"] * 3
    words = ("-m flash_helpers.build", "pt_bench.py", "ncu_bench.py")
    assert all(word in call for word, call in zip(words, calls, strict=True))
    assert all(column in calls[2] for column in data.NCU_COLUMNS if column.startswith("smsp"))
    assert (tmp_path / "out" / "ncu.csv").read_text() == "csv\n"
    assert subprocess.run([script], env=environ, capture_output=True, check=False).returncode == 2


@pytest.mark.parametrize("where", ["a file", "out"])
def test_a_folder_that_the_sweep_script_cannot_write_is_2(where: str, tmp_path: Path) -> None:
    """Before anything runs; a shell's own 1 would be a wrong result."""
    (tmp_path / "a file").touch()
    (tmp_path / "out" / "ncu.csv").mkdir(parents=True)
    script = ROOT / "tools/benchmark/benchmark_steps.sh"
    environ = {**os.environ, "PYTHON": "/bin/false"}
    done = subprocess.run([script, tmp_path / where], env=environ, capture_output=True, check=False)
    assert done.returncode == 2


def test_the_options_of_the_sweep_script_exist() -> None:
    text = (ROOT / "tools/benchmark/benchmark_steps.sh").read_text().replace("\\\n", " ")
    for tool in ("pt_bench.py", "ncu_bench.py"):
        (line,) = [x for x in text.splitlines() if f"{tool} --kernels" in x]
        command = [sys.executable, str(ROOT / "tools/benchmark" / tool), "--help"]
        known = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        options = re.findall(r"(?<!\S)--\w+", line)
        assert len(options) > 5 and all(option in known for option in options)


def test_the_committed_page_is_of_these_steps() -> None:
    """Titles and ideas; its figures are of the day it was written."""
    text = (previous_dir() / "README.md").read_text()
    for step in STEPS:
        assert f"### {step.number}. {step.title}\n" in text
        assert step.idea in text and step.change in text and step.why in text
        assert step.config.short_form() in text
