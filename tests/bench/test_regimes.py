"""The two regimes without a GPU: their problems, and how the command ends."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from flash_helpers.base.dtypes import DType
from flash_lab.bench import regimes
from flash_lab.bench.energy import EnergyMeter, cuda_mark

from .fake_gpu import FakeGpu


def test_problems() -> None:
    options = Namespace(
        d_heads=[64], seq_lens=[512, 16384], dtype=DType.BF16, seed=1, mask="both", batch=None,
        heads=16, kv_heads=None,
    )  # fmt: skip
    found = [(w.causal, w.seqlen_q, w.batch) for w in regimes.problems_of(options)]
    assert found == [(False, 512, 16), (False, 16384, 4), (True, 512, 16), (True, 16384, 4)]
    options.mask, options.batch, options.heads, options.kv_heads = "causal", 1, 64, 8
    found = [(w.causal, w.seqlen_q, w.batch) for w in regimes.problems_of(options)]
    assert found == [(True, 512, 1), (True, 16384, 1)]
    assert {(w.n_heads, w.n_kv_heads) for w in regimes.problems_of(options)} == {(64, 8)}


def test_the_second_half_of_sustained_work_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(watts=640.0, handle="handle of 0")
    monkeypatch.setitem(sys.modules, "pynvml", gpu.module())

    def meter(uuid: str, mark: object) -> EnergyMeter:
        assert mark is cuda_mark
        return EnergyMeter(uuid, gpu.mark, lambda: gpu.now)

    class Clocks:
        def __enter__(self) -> Clocks:
            self.began = gpu.now
            return self

        def __exit__(self, *_: object) -> None:
            assert gpu.now - self.began == pytest.approx(1.0, abs=0.1)
            assert self.began - gpu.began == pytest.approx(1.0, abs=0.1)

        def summary(self) -> dict[str, float]:
            return {"sm_mhz": 1700.0}

    monkeypatch.setattr(regimes, "EnergyMeter", meter)
    monkeypatch.setattr(regimes, "ClockSampler", Clocks)
    found = regimes.sustained(gpu.call(2.0), 2.0, 2.0)
    assert found == {
        "ms": pytest.approx(2.0, rel=0.03), "sm_mhz": 1700.0,
        "watts": pytest.approx(640.0, rel=0.03), "joules": pytest.approx(1.28, rel=0.03),
    }  # fmt: skip


def test_a_disturbed_round_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def once(call: Any, call_ms: float, seconds: float) -> dict[str, Any]:
        name = call()
        order.append(name)
        ms = call_ms * (3 if order.count(name) == 2 else 1)  # the second time is disturbed
        return {"ms": ms, "sm_mhz": None, "watts": 700.0, "joules": ms * 0.7}

    monkeypatch.setattr(regimes, "sustained", once)
    calls = {name: lambda name=name: name for name in ("ours", "cudnn", "fa4")}
    options = Namespace(seed=3, sustained_rounds=3, seconds=2.0)
    call_ms = {"ours": 1.0, "cudnn": 2.0, "fa4": 4.0}
    found = regimes.sustained_rounds(calls, call_ms, options)
    assert {name: each["ms"] for name, each in found.items()} == call_ms
    assert found["ours"] == {"ms": 1.0, "sm_mhz": None, "watts": 700.0, "joules": 0.7}
    rounds = [order[i : i + 3] for i in (0, 3, 6)]
    assert all(sorted(each) == sorted(calls) for each in rounds)  # interleaved
    assert len(set(map(tuple, rounds))) > 1  # and not always in one order


def test_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "rows.jsonl"
    assert regimes.main(["--out", str(out)]) == 4
    assert not out.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        "--seq_lens=0",
        "--dtype=fp8",
        "--rounds=0",
        "--seconds=-1",
        "--sustained_rounds=0",
        "--seq_lens=700",
        "--kv_heads=3",
    ],
)
def test_usage(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        regimes.main([wrong, "--out", str(tmp_path / "rows.jsonl")])
    assert caught.value.code == 2


def measured(provider: str, burst: float, sustained: float, **more: Any) -> str:
    row = {
        "provider": provider, "batch": 16, "seq_len": 512, "n_heads": 16, "n_kv_heads": 16,
        "d_head": 64, "causal": True, "dtype": "FP16", "burst_tflops": burst,
        "sustained_tflops": sustained, "sm_mhz": 1980.0, "watts": 600, "joules_per_tflop": 1.25,
    }  # fmt: skip
    return json.dumps(row | more)


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, later = tmp_path / "first.jsonl", tmp_path / "later.jsonl"
    rows = [measured("ours", 90, 90), measured("cudnn", 100, 80), measured("fa4", 95, 85)]
    first.write_text("\n".join(['{"gpu": "H200"}', *rows, measured("ours", 9, 9, seq_len=1024)]))
    later.write_text(measured("ours", 106, 89))
    assert regimes.main(["--show", str(first)]) == 1
    capsys.readouterr()
    assert regimes.main(["--show", str(first), str(later)]) == 1
    *_, row, other, _, summary = capsys.readouterr().out.splitlines()
    assert row == (
        "| 64 causal 512 | 106 / 100 / 95 | 1.060 | 89 / 80 / 85 | **1.047** "
        "| 1980 / 1980 / 1980 | 1.25 / 1.25 / 1.25 |"
    )
    assert "| 64 causal 1024 | 9 / - / - | - |" in other
    assert summary == "1 of 2 ratios are at least 1.05, 2 are missing"
    assert regimes.main(["--show", str(first), str(later), "--bar", "1.04"]) == 0


def test_no_table(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"gpu": "H200"}\n')
    assert regimes.main(["--show", str(rows)]) == 4
    for wrong in ('{"provider": "ours"}', "{"):
        rows.write_text(wrong)
        with pytest.raises(SystemExit) as caught:
            regimes.main(["--show", str(rows)])
        assert caught.value.code == 2
    with pytest.raises(SystemExit):
        regimes.main(["--show", str(tmp_path / "none")])
    with pytest.raises(SystemExit):
        regimes.main([])


@pytest.mark.parametrize("ms", [0.0, float("nan"), float("inf")])
def test_a_row_without_figures_is_said_and_ends_with_3(
    ms: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A time that cannot be: the other providers are still measured."""
    calls = {name: lambda: None for name in ("ours", "cudnn")}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(regimes, "provenance", lambda: {"gpu": "H200"})
    monkeypatch.setattr(regimes, "functions", lambda *_: calls)
    monkeypatch.setattr(regimes, "burst", lambda *_: {"ours": ms, "cudnn": 0.5})
    out = tmp_path / "rows.jsonl"
    options = ["--seq_lens", "512", "--d_heads", "64", "--mask", "full", "--seconds", "0"]
    assert regimes.main([*options, "--out", str(out)]) == 3
    _, ours, cudnn = (json.loads(line) for line in out.read_text().splitlines())
    assert "no figures: " in ours["error"] and "burst_tflops" not in ours
    assert cudnn["burst_tflops"] > 0 and "no figures: " in capsys.readouterr().out
    assert regimes.main(["--show", str(out)]) == 0
    assert "| 64 full 512 | - / " in capsys.readouterr().out
