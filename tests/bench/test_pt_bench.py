"""pt_bench from arguments to files and exit codes, with the fake backend and planted faults."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flash_helpers.kernel_configs import get_kernel_configs
from flash_lab.bench.pt_cli import main
from flash_lab.bench.records import encode
from flash_lab.bench.store import open_store, read_store

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
TOOL = REPOSITORY / "tools/benchmark/pt_bench.py"
BACKEND = "fake_backend:FakeBackend"
PROG = [config.short_form() for config in get_kernel_configs("prog")]
QUICK = ["--kernels", "prog", "--num_repeats", "4", "--num_warmups", "0", "--target_noise", "0"]
QUICK += ["--no_ceilings"]


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY / 'py'}:{HERE}")
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({"fa3": "absent", "fa4": "absent"}))


def plant(monkeypatch: pytest.MonkeyPatch, **faults: str) -> None:
    absent = {"fa3": "absent", "fa4": "absent"}
    monkeypatch.setenv("FAKE_FAULTS", json.dumps(absent | faults))


def bench(tmp_path: Path, *arguments: str) -> int:
    return main([*QUICK, "--out", str(tmp_path / "rows.jsonl"), *arguments], BACKEND)


def checks(tmp_path: Path) -> list[str]:
    return [line.removeprefix("check ") for line in (tmp_path / "log").read_text().splitlines()]


def statuses(tmp_path: Path) -> dict[str, str]:
    rows = read_store(tmp_path / "rows.jsonl").finished()
    return {row.kernel: row.status for row in rows}


def test_a_sweep_writes_rows_table_csv_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: tmp_path / f"out.{name}" for name in ("csv", "json")}
    arguments = ["--seq_lens", "512,1024", "--csv", str(files["csv"]), "--json", str(files["json"])]
    assert bench(tmp_path, *arguments) == 0
    output = capsys.readouterr().out
    assert output.count("matmul TFLOP/s") == 2 and "skipped: fa3: not installed" in output
    assert "build_fingerprint: feed" in output
    records = list(csv.DictReader(files["csv"].open()))
    assert sum(r["status"] == "ok" for r in records) == 2 * (7 + 2)
    assert len(json.loads(files["json"].read_text())["rows"]) == 2 * (7 + 4)
    row = read_store(tmp_path / "rows.jsonl").finished()[-1]
    assert (row.symbol or "").startswith("flash_fwd_sm80_fp16_d128") and row.kernel in PROG
    assert row.environment["gpu"] == "Fake GPU" and row.environment["commit"]
    assert isinstance(row.environment["dirty"], bool | str)
    assert row.seed == 1 and row.policy["repeats"] == 4 and row.command


def test_every_run_has_its_started_row_first(tmp_path: Path) -> None:
    bench(tmp_path, "--seq_lens", "512", "--providers", "ours")
    seen: dict[str, list[str]] = {}
    for row in read_store(tmp_path / "rows.jsonl").rows:
        seen.setdefault(row.kernel, []).append(row.phase or row.status)
    assert seen == {name: ["check", "measure", "clock", "check again", "ok"] for name in PROG}


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ("raises", "launch_fail", 3), ("exit", "launch_fail", 3), ("segfault", "launch_fail", 3),
        ("hang", "timeout", 3), ("wrong but fast", "wrong", 1),
    ],
)  # fmt: skip
def test_faults(
    fault: str, status: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    plant(monkeypatch, **{PROG[2]: fault})
    arguments = ["--seq_lens", "512", "--providers", "ours,fa2"]
    arguments += ["--time_limit", "5"] if fault == "hang" else []
    assert bench(tmp_path, *arguments) == code
    found = statuses(tmp_path)
    assert found.pop(PROG[2]) == status
    assert set(found.values()) == {"ok"} and len(found) == 7
    output = capsys.readouterr().out
    assert f"{status}: {PROG[2]}: " in output and f"| {PROG[2]} " not in output


def test_resume_measures_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--seq_lens", "512", "--providers", "ours,fa2", "--group", "3"]
    plant(monkeypatch, **{PROG[2]: "exit"})
    assert bench(tmp_path, *arguments, "--filter", "swizzled") == 3
    plant(monkeypatch)
    (tmp_path / "log").unlink()
    assert bench(tmp_path, *arguments) == 2
    assert "add --resume" in capsys.readouterr().err
    # The failure is a result too: it is not repeated unless that is asked for.
    assert bench(tmp_path, *arguments, "--filter", "swizzled", "--resume") == 3
    assert not (tmp_path / "log").exists()
    again = ("--filter", "swizzled", "--resume", "--retry_failed")
    assert bench(tmp_path, *arguments, *again) == 0
    assert set(checks(tmp_path)) == {PROG[2], "fa2"}
    (tmp_path / "log").unlink()
    assert bench(tmp_path, *arguments, "--resume", "--num_repeats", "5") == 0  # another policy
    assert set(checks(tmp_path)) == {*PROG, "fa2"}
    (tmp_path / "log").unlink()
    monkeypatch.setenv("FAKE_GPU", "Another GPU")
    assert bench(tmp_path, *arguments, "--resume", "--num_repeats", "5") == 0
    assert set(checks(tmp_path)) == {*PROG, "fa2"}
    assert "rows of 1 other environment(s) are kept" in capsys.readouterr().out


def command(tmp_path: Path, *arguments: str) -> list[str]:
    code = (
        f"import sys; from flash_lab.bench.pt_cli import main; sys.exit(main(backend={BACKEND!r}))"
    )
    out = ["--out", str(tmp_path / "rows.jsonl")]
    return [sys.executable, "-c", code, *QUICK, "--seq_lens", "512", *out, *arguments]


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_that_is_ended_goes_on_where_it_was(
    kind: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, **{PROG[4]: "hang"})  # the first of the third group of four
    arguments = ["--providers", "ours", "--group", "2", "--time_limit", "3600"]
    sweep = subprocess.Popen(
        command(tmp_path, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    path, log = tmp_path / "rows.jsonl", tmp_path / "log"
    while sweep.poll() is None and not (log.exists() and f"check {PROG[4]}" in log.read_text()):
        time.sleep(0.02)
    sweep.send_signal(kind)
    _, stderr = sweep.communicate()
    assert sweep.returncode == (130 if kind == signal.SIGINT else -signal.SIGKILL)
    if kind == signal.SIGINT:
        assert "interrupted: the finished rows are in" in stderr and "Traceback" not in stderr
    done = {row.kernel for row in read_store(path).finished()}
    assert done == set(PROG[:4])
    with path.open("ab") as file:  # and a torn line on top
        file.write(b'{"status":"ok","sam')
    (tmp_path / "log").unlink()
    plant(monkeypatch)
    resumed = subprocess.run(
        command(tmp_path, *arguments, "--resume"), capture_output=True, text=True, check=False
    )
    assert resumed.returncode == 0, resumed.stderr
    assert set(checks(tmp_path)) == set(PROG) - done
    assert statuses(tmp_path) == dict.fromkeys(PROG, "ok")
    assert "1 unreadable line(s) moved to" in resumed.stderr


def test_two_sweeps_do_not_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(tmp_path / "rows.jsonl", resume=False):
        assert bench(tmp_path, "--resume") == 2
    assert f"is being written by process {os.getpid()}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seq_lens", "12,x"], "'x' is not a positive integer"),
        (["--dtypes", "fp8"], "fp8"),
        (["--kernels", "nonsense"], "nonsense"),
        (["--num_repeats", "0"], "expected a number in 1..100000"),
        (["--num_repeats", "9", "--max_repeats", "3"], "max_repeats 3 is less than 9 repeats"),
        (["--providers", "ours,fa9"], "provider 'fa9' is not known: expected ours, fa2"),
        (["--filter", "nothing"], "leaves none of"),
        (["--resume"], "need --out"),
        (["--graph"], "--graph needs --noncu"),
        (["--time_limit", "nan"], "expected a number"),
    ],
)
def test_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments, BACKEND)
    assert caught.value.code == 2 and message in capsys.readouterr().err


def test_a_sequence_that_no_kernel_of_a_build_takes_is_no_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(tmp_path, "--seq_lens", "96", "--filter", "load_0_0_0") == 4
    assert "skipped: " in capsys.readouterr().out
    assert set(statuses(tmp_path).values()) == {"skipped", "ok"}


def test_without_a_gpu_there_is_no_data(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = subprocess.run(
        [sys.executable, str(TOOL), "--kernels", "prog", "--out", str(tmp_path / "rows.jsonl")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 4 and "torch sees no CUDA device" in done.stderr


def test_the_bar_is_for_terminals_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(tmp_path, "--seq_lens", "512", "--providers", "ours") == 0
    assert capsys.readouterr().err == ""


def test_resume_repeats_rows_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a right checksum: one of a wrong type, one that lacks its samples, one without a shape
    (which its key stands for), and a line of brackets."""
    arguments = ["--seq_lens", "512", "--providers", "ours"]
    assert bench(tmp_path, *arguments) == 0
    path = tmp_path / "rows.jsonl"
    rows = {row.kernel: row.to_json() for row in read_store(path).finished()}
    rows[PROG[0]]["samples_ms"][1] = "fast"
    del rows[PROG[1]]["samples_ms"], rows[PROG[1]]["bursts"], rows[PROG[2]]["shape"]
    path.write_bytes(b"".join(encode(row) for row in rows.values()) + b"[" * 200_000 + b"\n")
    (tmp_path / "log").unlink()
    capsys.readouterr()
    assert bench(tmp_path, *arguments, "--resume", "--csv", str(tmp_path / "rows.csv")) == 0
    assert set(checks(tmp_path)) == {PROG[0], PROG[1]}
    said = capsys.readouterr().err
    assert "samples_ms[1] is 'fast': expected" in said and "nested more than" in said
    assert "2 unreadable line(s) moved to" in said
    assert (tmp_path / "rows.csv").read_text().count("\nok,ours,") == len(PROG)
