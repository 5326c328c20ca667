"""The roofline's ceilings: measured like kernels, kept as rows, drawn, and in nobody's way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from flash_helpers.base.dtypes import DType
from flash_lab.bench import charts
from flash_lab.bench.ceilings import CeilingCase, make_candidate, measured_ceilings
from flash_lab.bench.compare_cli import main as compare
from flash_lab.bench.pt_cli import main as pt_bench
from flash_lab.bench.report_cli import ceilings_of
from flash_lab.bench.results import by_problem
from flash_lab.bench.store import read_store
from tests.bench.report_rows import ceiling_rows, recorded_rows

HERE = Path(__file__).resolve().parent
BACKEND = "fake_backend:FakeBackend"
SHAPE = CeilingCase(DType.FP16, 1).shape()
QUICK = ["--kernels", "prog", "--num_repeats", "4", "--target_noise", "0", "--seq_lens", "512"]


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("FAKE_SPEEDS", json.dumps({"matmul 4096|": 2, "matmul 8192|": 1.6}))


def test_a_matmul_and_a_copy_are_checked_and_counted() -> None:
    matmul = make_candidate("matmul 64", SHAPE, "cpu")
    assert matmul.check() == "" and matmul.describe() == {"flop": 2 * 64**3}
    copy = make_candidate("copy 1 MiB", SHAPE, "cpu")
    assert copy.check() == "" and copy.describe() == {"bytes": 2 << 20}
    with pytest.raises(ValueError, match="expected `matmul N` or `copy N MiB`"):
        make_candidate("sort 64", SHAPE, "cpu")


def test_work_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    matmul, copy = (make_candidate(name, SHAPE, "cpu") for name in ("matmul 64", "copy 1 MiB"))
    whole = torch.matmul

    def half(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return whole(a[:, :32], b[:32], out=out)

    monkeypatch.setattr(torch, "matmul", half)
    assert "the matmul is off by" in matmul.check()
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, other: self)
    assert copy.check() == "the copy differs from its source"


def test_a_sweep_measures_them_once_and_they_are_no_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "rows.jsonl"
    arguments = [*QUICK, "--providers", "ours", "--out", str(store)]
    assert pt_bench(arguments, BACKEND) == 0
    output = capsys.readouterr().out
    assert "ceilings: FP16 matmul 8192 6" in output and "matmul 4096" not in output
    rows = read_store(store).finished()
    ceilings = [row for row in rows if row.provider == "ceiling"]
    assert len(ceilings) == 4 and len(rows) == 4 + 7
    for row in ceilings:
        assert row.environment["gpu"] == "Fake GPU" and row.command and row.samples_ms
    found = measured_ceilings(rows)
    assert found is not None and found.peak == pytest.approx(1000 / 1.6, rel=0.02)
    assert len(by_problem(rows)) == 1
    assert pt_bench([*arguments, "--resume"], BACKEND) == 0
    assert len(read_store(store).rows) == len(read_store(store).finished()) * 5  # nothing again
    assert compare([str(store), str(store)]) == 0


def test_a_ceiling_that_fails_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_FAULTS", json.dumps({"matmul": "exit"}))
    arguments = [*QUICK, "--providers", "ours", "--out", str(tmp_path / "rows.jsonl")]
    assert pt_bench(arguments, BACKEND) == 3
    output = capsys.readouterr().out
    assert "launch_fail: ceiling matmul 4096 (FP16): the worker exited with code 7" in output
    assert measured_ceilings(read_store(tmp_path / "rows.jsonl").finished()) is None


def test_the_highest_of_each_kind_counts() -> None:
    like = recorded_rows()[-1]
    rows = [*ceiling_rows(like, "FP16", 700), *ceiling_rows(like, "BF16", 720)]
    found = measured_ceilings(rows)
    assert found is not None and found.origin == "measured"
    assert [name for name, _ in found.peaks] == ["BF16 matmul 4096", "FP16 matmul 4096"]
    assert found.peak == pytest.approx(720) and found.bandwidth == pytest.approx(4.0)
    assert found.bandwidths[0][0] == "copy 1024 MiB"
    assert found.peak_of("FP16") == pytest.approx(700) and found.peak_of("FP8") is None


def test_a_run_without_them_has_those_of_the_data_sheet() -> None:
    rows = recorded_rows()
    nominal = ceilings_of(rows)
    assert nominal is not None and nominal.origin == "data sheet" and nominal.bandwidth == 4.8
    measured = ceilings_of([*ceiling_rows(rows[-1]), *rows])
    assert measured is not None and measured.origin == "measured"


def test_every_kernel_has_its_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """At FLOP over the bytes of Q, K, V and O: 4 S S D B H / (8 B S H D) = S / 2."""
    pytest.importorskip("matplotlib")
    from matplotlib.axes import Axes

    rows = [row for row in recorded_rows() if row.problem.seqlen_q in (512, 4096)]
    everything = [m for problem in by_problem(rows) for m in problem.ranked]
    ceilings = ceilings_of([*ceiling_rows(everything[0].row), *rows])
    assert ceilings is not None
    points: list[tuple[float, float]] = []
    scatter = Axes.scatter

    def recorded(self: Axes, x: list[float], y: list[float], **more: Any) -> Any:
        points.extend(zip(x, y, strict=True))
        return scatter(self, x, y, **more)

    monkeypatch.setattr(Axes, "scatter", recorded)
    assert charts.roofline(everything, ceilings, "t").startswith(b"\x89PNG")
    assert len(points) == len(everything) == 2 * 2 * 42
    assert {round(x, 6) for x, _ in points} == {256.0, 2048.0}
    assert sorted(y for _, y in points) == sorted(m.matmul_tflops for m in everything)
