"""Energy by a fake NVML whose counter steps, and a tuner that minimizes energy or memory."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flash_attention.tuning_table import read_table
from flash_helpers.base.dtypes import DType
from flash_helpers.base.timing import Policy
from flash_helpers.kernel_configs import get_kernel_configs
from flash_lab.bench.autotune_cli import main
from flash_lab.bench.energy import EnergyError, EnergyMeter
from flash_lab.bench.objective import Objective, ObjectiveError
from flash_lab.bench.results import Measurement
from flash_lab.bench.row import Row
from flash_lab.bench.store import read_store

from .fake_gpu import FakeGpu

HERE = Path(__file__).resolve().parent
BACKEND = "fake_backend:FakeBackend"
FP16 = [c.short_form() for c in get_kernel_configs("tune") if c.dtype is DType.FP16]
FAST = next(k for k in FP16 if k.startswith("(FP16, 128, 128, 64, 4)"))
FRUGAL = next(k for k in FP16 if k.startswith("(FP16, 128, 128, 32, 4)"))
QUICK = [
    "--kernels",
    "tune",
    "--filter",
    "FP16, 128, 128,",
    "--dtypes",
    "fp16",
    "--seq_lens",
    "512",
]
QUICK += ["--no_build", "--no_ceilings"]


def meter(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, uuid: str = "GPU-1") -> EnergyMeter:
    monkeypatch.setitem(sys.modules, "pynvml", gpu.module())
    return EnergyMeter(uuid, gpu.mark, lambda: gpu.now)


@pytest.mark.parametrize("ms", [0.02, 0.7, 5.4, 21.0])
@pytest.mark.parametrize("step_s", [0.02, 0.1])
def test_the_energy_of_a_call_is_its_power_times_its_time(
    ms: float, step_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within what the batches are long, beside the loop: 10 ms, or one call. Whoever waits for the
    GPU before he looks counts it idle for 4 ms of 14."""
    gpu = FakeGpu(watts=640.0, step_s=step_s)
    energy = meter(gpu, monkeypatch).per_call(gpu.call(ms), ms, 1.0)
    assert energy.joules == pytest.approx(0.640 * ms, rel=2 * max(10.0, ms) / 800)
    assert energy.watts == pytest.approx(640, rel=2 * max(10.0, ms) / 800)
    assert 0.7 <= energy.seconds <= 1.1 and energy.n_steps >= 3


def test_a_slow_counter_is_waited_for_and_a_still_one_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = FakeGpu(step_s=0.4)
    energy = meter(slow, monkeypatch).per_call(slow.call(2.0), 2.0, 0.5)
    assert energy.joules == pytest.approx(1.2, rel=0.02) and energy.n_steps == 3
    still = FakeGpu(watts=0.0)
    with pytest.raises(EnergyError, match=r"moved 0 times in 2\.0"):
        meter(still, monkeypatch).per_call(still.call(2.0), 2.0, 0.5)


def test_why_there_is_no_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(refuses="Not Supported")
    with pytest.raises(EnergyError, match="no energy of this GPU: Not Supported"):
        meter(gpu, monkeypatch).per_call(gpu.call(1.0), 1.0, 0.5)
    with pytest.raises(EnergyError, match="NVML refuses: Not Found"):
        meter(gpu, monkeypatch, "GPU-none")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(EnergyError, match="nvidia-ml-py is not installed"):
        EnergyMeter("", gpu.mark)


def measured(ms: list[float], joules: list[float], n_bytes: int = 0, **more: Any) -> Measurement:
    row = Row("ok", "ours", "k", samples_ms=ms, bursts=[1] * len(ms), joules=joules, **more)
    return Measurement((replace(row, memory_bytes=n_bytes),))


def test_the_cost_is_the_weighted_geometric_mean() -> None:
    m = measured([2.0, 2.0, 2.0], [8.0, 4.0], 1000)
    assert Objective.parse("time").cost(m) == 2.0
    assert Objective.parse("energy").cost(m) == 6.0
    assert Objective.parse("memory").cost(m) == 1000
    both = Objective.parse("time=1,energy=3")
    assert both.cost(m) == pytest.approx((2 * 6**3) ** 0.25)
    assert both.observations(m) == [pytest.approx((2 * 8**3) ** 0.25), pytest.approx(128**0.25)]
    assert Objective.parse("time=1,memory=1").observations(m) == [pytest.approx(2000**0.5)] * 3
    assert str(both) == "time=1,energy=3" and str(Objective()) == "time"
    with pytest.raises(ObjectiveError, match="no energy of k: refused"):
        both.cost(measured([1.0], [], energy_note="refused"))
    with pytest.raises(ObjectiveError, match="memory that k uses is not known"):
        Objective.parse("memory").cost(m=measured([1.0], []))


@pytest.mark.parametrize(
    ("text", "said"),
    [("enrgy", "nearest is 'energy'"), ("time=0", "above 0"), ("time=x", "above 0"),
     ("time,time", "twice"), ("", "nearest"), ("time=nan", "above 0")],
)  # fmt: skip
def test_objectives_that_are_none(text: str, said: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=said):
        Objective.parse(text)


def test_a_policy_refuses_senseless_energy() -> None:
    with pytest.raises(ValueError, match="up to 60 s"):
        Policy(1, 1, True, energy_rounds=-1)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """FRUGAL is 4 % slower than FAST and takes 20 % less energy and half the memory."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("FAKE_SPEEDS", json.dumps({f"{FAST}|": 0.5, f"{FRUGAL}|": 0.52}))
    monkeypatch.setenv("FAKE_JOULES", json.dumps({f"{FAST}|": 0.35, f"{FRUGAL}|": 0.28}))
    monkeypatch.setenv("FAKE_BYTES", json.dumps({f"{FRUGAL}|": 1 << 19}))


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("objective", "best"),
    [("time", FAST), ("energy", FRUGAL), ("memory", FRUGAL), ("time=9,energy=1", FAST),
     ("time=1,energy=1", FRUGAL)],
)  # fmt: skip
def test_the_tuner_minimizes_what_it_is_told(
    objective: str, best: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, table = tmp_path / "rows.jsonl", tmp_path / "table.json"
    arguments = [
        "--kernels",
        "tune",
        "--no_build",
        "--no_ceilings",
        "--seq_lens",
        "512",
        "--filter",
        "128, 128,",
    ]
    arguments += ["--dtypes", "fp16", "--out", str(store), "--table", str(table)]
    assert main([*arguments, "--objective", objective], BACKEND) == 0
    output = capsys.readouterr().out
    (entry,) = read_table(table)
    assert entry.kernels[0] == best and entry.evidence["objective"] == objective
    assert f": {best}: 0." in output and "surely the best of" in output
    rows = [row for row in read_store(store).finished() if row.stage == "final"]
    if "energy" in objective:
        assert all(len(row.joules) == row.policy["energy_rounds"] == 8 for row in rows)
        assert entry.evidence["joules"] == pytest.approx(0.28 if best == FRUGAL else 0.35, rel=0.02)
        assert f"by {objective}: joules 0." in output
    else:
        assert not any(row.joules for row in rows)


@pytest.mark.usefixtures("fake")
def test_energy_that_nvml_refuses_is_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({"energy": "refused"}))
    arguments = [
        "--kernels",
        "tune",
        "--no_build",
        "--no_ceilings",
        "--seq_lens",
        "512",
        "--filter",
        "128, 128,",
    ]
    arguments += ["--out", str(tmp_path / "rows.jsonl"), "--table", str(tmp_path / "table.json")]
    assert main([*arguments, "--objective", "time=2,energy=1"], BACKEND) == 4
    said = capsys.readouterr().err
    assert "no data: --objective time=2,energy=1: there is no energy of (FP16" in said
    assert "Not Supported" in said and not (tmp_path / "table.json").exists()
