"""Worker isolation: every planted fault costs the row of its kernel and no other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flash_lab.bench.supervisor import Supervisor, WorkerStartError

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
BACKEND = "fake_backend:FakeBackend"
POLICY = {"warmups": 1, "repeats": 4, "cold_l2": False, "burst": 2}


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))


def request(*kernels: str) -> dict[str, Any]:
    candidates = [{"provider": "ours", "kernel": name} for name in kernels]
    return {"shape": {"seq_len": 64, "seed": 1}, "policy": POLICY, "candidates": candidates}


def measure(*kernels: str, limit_s: float = 300.0) -> tuple[dict[str, dict[str, Any]], int]:
    """Results by kernel, and how many workers it took."""
    results: dict[str, dict[str, Any]] = {}
    with Supervisor(BACKEND, time_limit_s=limit_s) as supervisor:
        for event in supervisor.measure(request(*kernels)):
            if event["event"] == "result":
                assert event["kernel"] not in results
                results[event["kernel"]] = event
    return results, supervisor.n_started


def test_without_faults_one_worker_does_it_all() -> None:
    results, n_workers = measure("a", "b", "c")
    assert n_workers == 1
    assert {r["status"] for r in results.values()} == {"ok"}
    a = results["a"]
    assert len(a["samples_ms"]) == 4 and a["bursts"] == [2, 2]
    assert a["effective_sm_mhz"] == 1700.0 and a["registers"] == 128
    assert a["clocks"]["power_limited"] == 1.0 and a["throttled"] == {}


@pytest.mark.parametrize(
    ("fault", "status", "error", "n_workers"),
    [
        ("raises", "launch_fail", "RuntimeError: CUDA error: an illegal memory access", 2),
        ("exit", "launch_fail", "the worker exited with code 7", 2),
        ("segfault", "launch_fail", "SIGSEGV", 2),
        ("hang", "timeout", "no answer within 5 s", 2),
        ("hang when timed", "timeout", "no answer within 5 s", 2),
        ("raises when timed", "launch_fail", "misaligned address", 2),
        ("dies when timed", "launch_fail", "exited with code 9", 2),
        ("wrong but fast", "wrong", "5 of 8 rows are wrong", 1),
        ("wrong later", "wrong", "wrong on the second look", 1),
        ("absent", "skipped", "not installed", 1),
    ],
)
def test_a_fault_costs_one_row(
    fault: str, status: str, error: str, n_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({"bad": fault}))
    limit_s = 5.0 if "hang" in fault else 300.0  # the good ones of a busy machine need theirs
    results, n_started = measure("first", "bad", "last", limit_s=limit_s)
    assert results["bad"]["status"] == status and error in results["bad"]["error"]
    assert "samples_ms" not in results["bad"]  # a time that nobody can rank
    assert len(results["bad"]["error"]) <= 600
    assert results["first"]["status"] == results["last"]["status"] == "ok"
    assert len(results["first"]["samples_ms"]) == 4
    assert n_started == n_workers


def test_several_faults_in_one_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = {
        "one": "exit",
        "two": "segfault",
        "three": "wrong but fast",
        "four": "dies when timed",
    }
    monkeypatch.setenv("FAKE_FAULTS", json.dumps(faults))
    results, n_started = measure("one", "good", "two", "three", "four")
    statuses = {name: result["status"] for name, result in results.items()}
    assert statuses == {
        "one": "launch_fail", "two": "launch_fail", "three": "wrong", "four": "launch_fail",
        "good": "ok",
    }  # fmt: skip
    assert n_started == 4


def test_a_problem_that_cannot_be_prepared_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({"prepare": "64"}))
    results, n_started = measure("a", "b")
    assert {r["status"] for r in results.values()} == {"launch_fail"}
    assert "exited with code 5" in results["a"]["error"] and n_started == 1


def test_a_worker_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_START", "fails")
    with pytest.raises(WorkerStartError, match="torch sees no CUDA device"):
        measure("a")


def test_throttled_samples_are_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({"throttle": str(0x44)}))
    results, _ = measure("a")
    assert results["a"]["throttled"] == dict.fromkeys("0123", "hardware thermal slowdown")


def test_a_clock_that_cannot_be_had_costs_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    results, _ = measure("a")
    assert results["a"]["loaded_sm_mhz"] == 1650.0
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({"clock": "raises"}))
    results, n_workers = measure("a", "b")
    assert results["a"]["status"] == "ok" and n_workers == 1
    assert results["a"]["loaded_clock_note"] == "no clock under load: RuntimeError: no such stream"


def test_a_killed_sweep_takes_its_worker_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({"bad": "hang"}))
    code = (
        "from flash_lab.bench.supervisor import Supervisor\n"
        f"with Supervisor({BACKEND!r}) as s:\n"
        f"    for event in s.measure({request('bad')!r}):\n"
        "        print(s._worker.process.pid, flush=True)\n"
    )
    paths = f"{REPOSITORY / 'py'}:{HERE}"
    sweep = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip
    assert sweep.stdout is not None
    worker = int(sweep.stdout.readline())
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    for _ in range(5000):  # it would hang for a thousand seconds
        if not _is_alive(worker):
            return
        time.sleep(0.02)
    raise AssertionError("the worker lives on")


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
