"""benchmark_kernel: its figures, its rule for more samples, and where it refuses."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest

from flash_attention.triton_kit.op import Work
from flash_lab.bench.energy import EnergyMeter
from flash_lab.operators import environment
from flash_lab.operators.benchmark import benchmark_kernel, benchmark_kernels, figures
from flash_lab.operators.environment import UnfitEnvironmentError, checks
from flash_lab.operators.shapes import Point, best_working_point, sensitivity
from tests.bench.fake_gpu import FakeGpu
from tests.measured_operators.fake_timer import FakeTimer

KEYS = {"n", "min", "p50", "p90", "mean", "std", "rsd"}


def nothing(*_: object) -> None:
    """A kernel."""


def test_the_keys_and_figures_of_a_steady_kernel() -> None:
    given: list[tuple[object, ...]] = []
    timer = FakeTimer([1.0, 1.01])
    found = benchmark_kernel(lambda *args: given.append(args), 3, "x", timer=timer)
    assert timer.calls == found["n"] == 20
    assert given == [(3, "x")] * 25  # five of them to warm up
    assert set(found) == KEYS | {"max", "steady", "filtered", "samples_ms"}
    assert found["steady"] and set(found["filtered"]) == KEYS | {"max"}
    times = found["samples_ms"]
    assert found["mean"] == statistics.fmean(times) and found["std"] == statistics.stdev(times)
    assert found["rsd"] == found["std"] / found["mean"]


@pytest.mark.parametrize(("repeat", "n"), [(20, 100), (60, 100), (100, 100), (150, 150)])
def test_a_noisy_kernel_gets_more_samples_and_is_not_called_steady(repeat: int, n: int) -> None:
    timer, calls = FakeTimer([1.0, 1.5]), list[None]()
    found = benchmark_kernel(lambda: calls.append(None), repeat=repeat, timer=timer)
    assert len(calls) == 5 + n  # warmed up once
    assert timer.calls == found["n"] == n and not found["steady"]
    assert "p99" in found and "max" not in found


def test_fifty_samples_are_enough_where_only_the_first_are_noisy() -> None:
    timer = FakeTimer([1.2] * 2 + [1.0] * 98)
    found = benchmark_kernel(nothing, timer=timer)
    assert found["n"] == 50 and found["steady"]


def test_outliers_are_kept_in_the_sample_and_left_out_of_the_filtered_one() -> None:
    found = figures([1.0, 1.01, 1.02, 1.03] * 5 + [9.0])
    assert found["max"] == 9.0 and found["n"] == 21 and not found["steady"]
    assert found["filtered"]["max"] == 1.03 and found["filtered"]["n"] == 20


@pytest.mark.parametrize("ms", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_cannot_be_is_refused(ms: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        benchmark_kernel(nothing, timer=FakeTimer([1.0, ms]))


def test_too_few_repeats_are_refused() -> None:
    with pytest.raises(ValueError, match=r"19 repeats: expected .* 20 or more"):
        benchmark_kernel(nothing, repeat=19, timer=FakeTimer([1.0]))


def test_several_kernels_have_as_many_samples_each() -> None:
    found = benchmark_kernels({"a": nothing, "b": nothing}, timer=FakeTimer([1.0, 1.0, 3.0]))
    assert [found[name]["n"] for name in "ab"] == [100, 100]


def test_nothing_is_timed_where_every_launch_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = FakeTimer([1.0])
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    with pytest.raises(UnfitEnvironmentError, match=r"CUDA_LAUNCH_BLOCKING: 1 .*unset it"):
        benchmark_kernel(nothing, timer=timer)
    assert timer.calls == 0
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "0")
    assert benchmark_kernel(nothing, timer=timer)["n"] == 20


def test_the_checks_say_what_they_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "open_nvml", lambda _: (None, None, "not installed"))
    governor = tmp_path / "governor"
    assert [str(check) for check in checks({}, governor)] == [
        "CUDA_LAUNCH_BLOCKING: not set", "CPU governor: not readable",
        "energy by NVML: not installed (no energy, no throttle reasons)",
    ]  # fmt: skip
    governor.write_text("powersave\n")
    assert "'performance' is steadier" in str(checks({}, governor)[1])
    governor.write_text("performance\n")
    assert str(checks({}, governor)[1]) == "CPU governor: performance"
    assert [c.fatal for c in checks({"CUDA_LAUNCH_BLOCKING": "1"}, governor)] == [
        True,
        False,
        False,
    ]


def test_a_curve_over_shapes_with_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(watts=500.0)
    monkeypatch.setitem(sys.modules, "pynvml", gpu.module())
    timer = FakeTimer([2.0])
    job = ((1024, 1024), gpu.call(2.0), Work(4 * 10**9, 6 * 10**6))
    meter = EnergyMeter("GPU-1", gpu.mark, lambda: gpu.now)
    (point,) = sensitivity([job], timer=timer, meter=meter)
    assert (point.gflops, point.gb_s, point.note) == (2000.0, 3.0, "")
    assert point.gops_per_watt == pytest.approx(4.0, rel=0.05)  # 4 GFLOP for 500 W x 2 ms
    gpu.refuses = "Not Supported"
    (point,) = sensitivity([job], timer=timer, meter=meter)
    assert point.gops_per_watt is None and "Not Supported" in point.note


def test_the_best_working_point_is_the_smallest_of_the_fastest() -> None:
    times = {1024: 1.0, 2048: 1.95, 4096: 15.5, 8192: 124.0}
    points = [Point((n, n), ms, Work(2 * n**3, 6 * n**2)) for n, ms in times.items()]
    assert best_working_point(points).shape == (2048, 2048)
    copies = [Point((n,), ms, Work(0, n)) for n, ms in ((1000, 1.0), (2000, 1.0), (4000, 1.9))]
    assert best_working_point(copies).shape == (4000,)
    with pytest.raises(ValueError, match="nothing was measured"):
        best_working_point([])
