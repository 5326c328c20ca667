"""The model of waves against GPUs that are made up here, and the command that draws the curve."""

from __future__ import annotations

import csv
import heapq
import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.base.timing import Sample
from flash_lab.profiling import waves_cli
from flash_lab.profiling.cli import main
from flash_lab.waves import model as wave_model
from flash_lab.waves.curve import Subject, curve, measure
from flash_lab.waves.model import Calibrated, WaveModel, calibrate, calibration_blocks

SMS = 132


def independent(blocks: int, chance: random.Random) -> float:
    """Milliseconds on a GPU with one block an SM: a queue, with a little luck in every block.
    Written without the model: no waves, no SMs that share."""
    free = [0.0] * SMS
    for _ in range(blocks):
        heapq.heappush(free, heapq.heappop(free) + 0.1 * chance.gauss(1, 0.002))
    return 0.004 + max(free)


def sharing(blocks: int, chance: random.Random) -> float:
    """Two blocks an SM that share its pipe: together they take 1.5 times as long as one alone.
    In small steps of time, a block after the other."""
    sms: list[list[float]] = [[] for _ in range(SMS)]
    waiting, now, step = blocks, 0.004, 0.001
    while waiting or any(sms):
        for turn in range(2):  # each SM one, then the next
            for sm in sms:
                if waiting and len(sm) == turn:
                    sm.append(1.0)
                    waiting -= 1
        for sm in sms:
            speed = step / (0.1 if len(sm) == 1 else 0.15)
            sm[:] = [left - speed for left in sm if left - speed > 1e-9]
        now += step
    return now * chance.gauss(1, 0.001)


def fake_timer(milliseconds: Callable[[int, random.Random], float], seed: int) -> Any:
    chance = random.Random(seed)

    def timer(function: Callable[[], object]) -> Sample:
        blocks = function()
        assert isinstance(blocks, int)
        return Sample(milliseconds(blocks, chance))

    return timer


def subject(blocks_per_sm: int) -> Subject:
    return Subject("a kernel", SMS, blocks_per_sm, lambda blocks: lambda: blocks)


@pytest.mark.parametrize(("gpu", "blocks_per_sm"), [(independent, 1), (sharing, 2)])
def test_the_prediction_fits_a_gpu_that_behaves(
    gpu: Callable[[int, random.Random], float], blocks_per_sm: int, seed: int
) -> None:
    blocks = range(1, 601, 37)
    made = subject(blocks_per_sm)
    samples = measure(made, blocks, 3, fake_timer(gpu, seed), seed)
    found = curve(made, blocks, samples)
    assert abs(found.worst.deviation) < 0.03, found.describe()
    assert len(found.rows()) == len(blocks)
    assert found.model.always.blocks_per_sm == blocks_per_sm
    assert found.model.always.singles == found.model.at_times.singles


def test_a_gpu_that_does_not_behave_shows(seed: int) -> None:
    """Where blocks of the tail run twice as fast, the curve is far from the prediction."""

    def odd(blocks: int, chance: random.Random) -> float:
        return independent(blocks, chance) - (0.05 if blocks % SMS in range(1, 40) else 0.0)

    samples = measure(subject(1), range(1, 601, 10), 1, fake_timer(odd, seed), seed)
    found = curve(subject(1), range(1, 601, 10), samples)
    assert abs(found.worst.deviation) > 0.1
    assert "points are off by more than 5 %" in found.describe()


@pytest.mark.parametrize(
    "model",
    [
        WaveModel(SMS, (0.1,), 0.003, 0.95, SMS),
        WaveModel(SMS, (0.1, 0.15), 0.003, 1.02, SMS),
        WaveModel(SMS, (0.1, 0.15), 0.003, 1.0, singles=0),
        WaveModel(SMS, (0.1, 0.15), 0.003, 1.0, singles=50),
        WaveModel(SMS, (0.1, 0.1, 0.14), 0.0, 1.0, SMS),
    ],
)
def test_calibration_finds_the_model_again(model: WaveModel) -> None:
    per_sm = model.blocks_per_sm
    times = {n: [model.predict_ms(n)] for n in calibration_blocks(SMS, per_sm)}
    found = calibrate(SMS, per_sm, times)
    for blocks in range(1, 600, 7):
        expected = model.predict_ms(blocks)
        nearest = min(abs(ms - expected) for ms in found.predict_ms(blocks))
        assert nearest == pytest.approx(0, abs=1e-9)
    always = found.always
    assert always.block_ms == pytest.approx(model.block_ms)
    assert always.overhead_ms == pytest.approx(model.overhead_ms, abs=1e-9)
    assert always.alone == pytest.approx(model.alone)
    assert always.singles <= model.singles <= found.at_times.singles < always.singles + 12


def undecided(blocks: int, chance: random.Random) -> float:
    """From 70 to 105 waiting blocks luck decides whether an SM takes two of them."""
    model = WaveModel(SMS, (0.06, 0.108), 0.009, 0.97, singles=chance.randrange(70, 105))
    return model.predict_ms(blocks) * chance.gauss(1, 0.002)


def test_where_launches_differ_both_predictions_stand(seed: int) -> None:
    blocks = range(1, 601, 3)
    samples = measure(subject(2), blocks, 10, fake_timer(undecided, seed), seed)
    found = curve(subject(2), blocks, samples)
    assert abs(found.worst.deviation) < 0.03, found.describe()
    either = {point.blocks for point in found.points if point.is_open}
    # Between the probes around 70 and 105 (11 blocks apart), and the same a wave later.
    assert {n for n in blocks if 264 + 77 < n < 264 + 99} <= either
    assert either <= set(range(264 + 67, 264 + 110)) | set(range(528 + 67, 601))
    assert f"({len(either)} points, of which the nearer prediction counts)" in found.describe()
    assert sum(row["open"] for row in found.rows()) == len(either)


def test_a_model_that_always_spreads_is_found_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: nobody looks for where an SM takes two blocks."""
    monkeypatch.setattr(wave_model, "with_singles", lambda model, _: Calibrated(model, model))
    samples = measure(subject(2), range(1, 601, 9), 5, fake_timer(undecided, seed), seed)
    assert abs(curve(subject(2), range(1, 601, 9), samples).worst.deviation) > 0.1


def test_what_the_model_says_of_whole_and_broken_waves() -> None:
    model = WaveModel(SMS, (0.1,), 0.0, 1.0, SMS)
    for waves in (1, 2, 7):
        assert model.predict_ms(waves * SMS) == pytest.approx(waves * 0.1)
        assert model.predict_ms(waves * SMS + 1) == pytest.approx((waves + 1) * 0.1)
        assert model.efficiency(waves * SMS, waves * 0.1) == pytest.approx(1.0)
    shared = WaveModel(SMS, (0.1, 0.15), 0.0, 1.0, SMS)
    assert shared.predict_ms(SMS) == pytest.approx(0.1)  # one on each SM
    assert shared.predict_ms(SMS + 1) == pytest.approx(0.15)
    assert shared.predict_ms(2 * SMS + 1) == pytest.approx(0.25)
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(
        shared.predict_ms(n) for n in range(1, 600)))  # fmt: skip


def test_times_that_cannot_be_are_refused() -> None:
    times = {n: [0.1] for n in calibration_blocks(SMS, 1)}
    with pytest.raises(ValueError, match="nothing can be predicted"):
        calibrate(SMS, 1, times)


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waves_cli, "sms_here", lambda: SMS)
    monkeypatch.setattr(waves_cli, "wave_block", lambda n, threads, us: subject(n))
    timers = iter([fake_timer(independent, 1), fake_timer(sharing, 1)])
    monkeypatch.setattr("flash_lab.profiling.waves_cli.CudaTimer", lambda *_, **__: next(timers))


def test_the_command_measures_and_writes(
    fake_gpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["waves", "--measure", "--blocks_per_sm", "1", "--repeats", "2", "--step", "20"]
    assert main([*arguments, "--out", str(tmp_path), "--seed", "5"]) == 0
    output = capsys.readouterr().out
    assert "every point within 5 %: yes (seed 5)" in output and "largest deviation" in output
    rows = list(csv.DictReader((tmp_path / "waves-a-kernel.csv").open()))
    assert [int(row["blocks"]) for row in rows] == list(range(1, 601, 20))
    assert all(abs(float(row["deviation_pct"])) < 5 for row in rows)
    lines = (tmp_path / "waves-a-kernel.jsonl").read_text().splitlines()
    assert {len(json.loads(line)["samples_ms"]) for line in lines} == {2, 8}  # more to calibrate
    assert (tmp_path / "waves-a-kernel.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_fails_where_the_prediction_does(
    fake_gpu: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The planted bug: the time of a block alone on its SM is taken for that of two."""
    right = WaveModel.time_ms
    monkeypatch.setattr(WaveModel, "time_ms", lambda self, n, busy: 1.3 * right(self, n, busy))
    assert main(["waves", "--measure", "--blocks_per_sm", "1", "--step", "50"]) == 1
    assert "every point within 5 %: NO" in capsys.readouterr().out
