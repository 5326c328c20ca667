"""ncu_bench.py is stopped: nothing that is done is lost, and nobody is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flash_lab.bench import ncu_run
from flash_lab.bench.ncu_metrics import METRICS
from flash_lab.bench.ncu_run import Ncu, NcuTimeoutError, profile
from tests.bench.ncu_stand_in import SHAPE, TOOL, Bench, rows


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def all_end(pids: Path) -> bool:
    """Long before they would by themselves, which is after ten minutes. A killed process does not
    die at once on a busy machine."""
    for _ in range(5000):
        if not any(map(_alive, pids.read_text().split())):
            return True
        time.sleep(0.02)
    return False


def _alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_keeps_what_is_done_and_leaves_nobody_behind(
    bench: Bench, number: signal.Signals, code: int
) -> None:
    shape = tuple(item.replace("1024", "1024,2048") for item in SHAPE)
    process = subprocess.Popen(
        [sys.executable, TOOL, *shape, "--csv", "--reader=csv"], env=bench.environment("ok,hang"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    pids = Path(f"{bench.log}.pids")
    while not (pids.exists() and pids.read_text().count(" ")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(number)
    stdout, stderr = process.communicate()
    assert process.returncode == code, stderr
    assert "Traceback" not in stderr
    assert [row["seq_len"] for row in rows(stdout)] == ["1024"] * 4
    assert all_end(pids)


def test_a_target_that_ignores_signals_is_killed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ncu_run, "GRACE_S", (0.1, 0.1))
    for name, value in bench.environment("stubborn").items():
        monkeypatch.setenv(name, value)
    pids = Path(f"{bench.log}.pids")
    ncu = Ncu(bench.folder / "bin/ncu", "1", None, "none", 3.0, METRICS)
    with pytest.raises(NcuTimeoutError, match="stopped after 3 s"):
        profile(ncu, ["target"])
    # Where the machine was too busy for it to begin within that time, nobody was left either.
    assert not pids.exists() or all_end(pids)
