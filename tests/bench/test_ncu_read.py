"""Reading what ncu 2025.3.1 really printed on an H200, and what must not be read."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path

import pytest

from flash_helpers.base.dtypes import DType
from flash_helpers.kernel_configs import get_kernel_configs
from flash_lab.bench.ncu_classify import KERNEL_FILTER, OURS, UNKNOWN, V2, V3, classify
from flash_lab.bench.ncu_messages import advise, application_code, counters_are_refused
from flash_lab.bench.ncu_metrics import (
    CLOCK,
    CYCLES,
    DURATION,
    METRICS,
    MetricError,
    Quantity,
    parse_value,
    with_extra,
)
from flash_lab.bench.ncu_read import ReadError, find_report_module, read_csv, read_report

DATA = Path(__file__).parent / "data/ncu"
OK = (DATA / "ok.csv").read_text()
FA2 = (
    "void {}::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, 0, 0, cutlass::{}, "
    "Flash_kernel_traits<128, 128, 64, 4, cutlass::{}>>, 0, 0, 0, 0, 1, 1, 0, 0>(x)"
)


def test_every_metric_of_every_launch_is_read() -> None:
    reading = read_csv(OK)
    assert reading.problems == []
    providers = [classify(launch.symbol).provider for launch in reading.launches]
    assert providers == [V2, V2, V3, V3, OURS, OURS, OURS, OURS]
    for launch in reading.launches:
        for metric in METRICS:
            assert metric.read(launch.values) >= 0
    first, cudnn = reading.launches[0].values, reading.launches[2].values
    assert DURATION.read(first) == 56_128
    assert CYCLES.read(first) == 100_330
    assert CLOCK.read(first) == 1_780_822_675.88
    assert {m.key: m.read(cudnn) for m in METRICS if m.key in ("registers", "l2_hit_pct")} == {
        "registers": 168,
        "l2_hit_pct": 52.35,
    }


def test_a_metric_that_does_not_exist_is_an_error_and_not_zero() -> None:
    launch = read_csv((DATA / "badmetric.csv").read_text()).launches[0]
    assert DURATION.read(launch.values) == 61_920
    with pytest.raises(MetricError, match=r"no__such_metric.sum is n/a"):
        with_extra(["no__such_metric.sum"])[-1].read(launch.values)
    with pytest.raises(MetricError, match=r"sm__cycles_elapsed\.max is absent"):
        CYCLES.read(launch.values)


def test_outputs_without_a_table() -> None:
    for name in ("nokernel", "appfails"):
        assert read_csv((DATA / f"{name}.csv").read_text()).launches == []
    nothing = " ".join(advise((DATA / "nokernel.csv").read_text()))
    assert "profiled no kernel" in nothing
    assert "flash_fwd_sm80_fp16_d128_r64_c64_w4_async_load_0_0_0" in nothing
    assert application_code((DATA / "appfails.csv").read_text()) == 1
    assert advise(OK) == []
    assert not counters_are_refused(OK)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have", "CAP_SYS_ADMIN"),
        ("==ERROR== Profiling failed because a driver resource was unavailable.", "DCGM"),
        ("==ERROR== Cuda driver is not compatible with Nsight Compute.", "driver's release"),
        ("==ERROR== Failed to find metric regex:^foo", "--query-metrics"),
        ("==ERROR== unrecognised option '--clock-control'", "newer"),
        ("==ERROR== the moon is full", "ncu says: the moon is full"),
    ],
)
def test_advice(text: str, advice: str) -> None:
    assert advice in " ".join(advise(f"noise\n{text}\n"))


def test_units_are_converted_or_refused() -> None:
    def duration(value: str | float, unit: str) -> float:
        return DURATION.read({DURATION.name: Quantity(value, unit)})

    assert duration("78,336", "ns") == 78_336
    assert duration("78.336", "us") == pytest.approx(78_336)
    assert duration(0.078336, "msecond") == pytest.approx(78_336)
    assert CLOCK.read({CLOCK.name: Quantity("1.78", "Ghz")}) == pytest.approx(1.78e9)
    for unit in ("", "%", "cycle", "weeks"):
        with pytest.raises(MetricError, match="has the unit"):
            duration("78,336", unit)
    with pytest.raises(MetricError, match="must be positive"):
        duration("0", "ns")


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0.0), ("1,780,822,675.88", 1780822675.88), ("12.50", 12.5), ("-1e3", -1000.0)],
)
def test_numbers(text: str, value: float) -> None:
    assert parse_value("m", Quantity(text, "")) == value


@pytest.mark.parametrize(
    "text",
    ["n/a", "", "N/A", "(!) nan", "nan", "inf", "1.780,8", "12,34", "1,2345", "0x10", "١٢", "1 2",
     "1e999", float("nan"), float("inf")],
)  # fmt: skip
def test_what_is_not_a_number(text: str | float) -> None:
    with pytest.raises(MetricError):
        parse_value("m", Quantity(text, ""))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda text: text[: text.rindex('"7"') + 60], "is malformed"),
        (lambda text: text[: text.rindex(',"%"')], "has 13 cells instead of 15"),
        (lambda text: text + text.splitlines()[-1] + "\n", "repeats "),
        (lambda text: text.replace('"7","9513"', '"6","9513"', 1), "repeats "),
        (lambda text: text.replace('"7","9513"', '"1","9513"', 1), "another kernel"),
    ],
)
def test_a_damaged_line_costs_its_value_and_is_reported(
    damage: Callable[[str], str], problem: str
) -> None:
    reading = read_csv(damage(OK))
    assert len(reading.launches) == 8
    assert len(reading.problems) == 1
    assert problem in reading.problems[0]


@pytest.mark.parametrize("column", ["Metric Unit", "Kernel Name", "Metric Value"])
def test_another_table_is_refused(column: str) -> None:
    with pytest.raises(ReadError, match=f"no column '{column}'"):
        read_csv(OK.replace(f',"{column}"', ""))


def test_every_kernel_name_is_ours_and_passes_the_filter() -> None:
    import re

    pattern = KERNEL_FILTER.removeprefix("regex:")
    for config in get_kernel_configs("all"):
        identity = classify(config.kernel_name())
        assert (identity.provider, identity.config) == (OURS, config)
        assert re.search(pattern, config.kernel_name())
    available = (DATA / "nokernel.csv").read_text().split("Available Kernels:\n")[1].splitlines()
    passing = [line for line in available if re.search(pattern, line)]
    assert [line.split("_")[0] for line in passing] == ["3. flash", "4. flash"]


@pytest.mark.parametrize(
    ("symbol", "provider", "label", "dtype"),
    [
        (FA2.format("pytorch_flash", "half_t", "half_t"), V2, "FlashAttention-2 (Py", DType.FP16),
        (FA2.format("flash", "bfloat16_t", "bfloat16_t"), V2, "FlashAttention-2", DType.BF16),
        ("void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<64, 128, 64, 4, "
         "cutlass::half_t>>", V2, "FlashAttention-2", DType.FP16),
        ("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::Collective"
         "MainloopFwdSm90<2, cutlass::bfloat16_t>>>>", V3, "FlashAttention-3", DType.BF16),
        ("kernel_cutlass_kernel_flash_attncuteflash_fwd_sm90FlashAttentionForwardSm90_object_at__"
         "tensorptrf16gmemalign16oi64div81i64div8i64div8_tens_0", V3, "FlashAttention-4",
         DType.FP16),
        ("flash_fwd_sm90_bf16_head_dim128_tile128x128_threads384_kernel_cutlass_kernel_flash_attn"
         "cuteflash_fwd_sm90FlashAttentionForwardSm90_object_at__tensor0000o11101213_0", V3,
         "FlashAttention-4", DType.BF16),
        ("kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__"
         "tensor0000o11101213_None_0", V3, "FlashAttention-4", None),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1",
         V3, "cuDNN", None),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_bf16_knob_7_64x128x128_4x1x1",
         V3, "cuDNN", None),
        (FA2.format("flash", "half_t", "bfloat16_t"), V2, "FlashAttention-2", None),
        ("flash_fwd_sm80_fp16_d128_r64_c64_w4_async_load_0_0_0_and_more", UNKNOWN, "", None),
        ("void some_flash_thing<int>(int)", UNKNOWN, "", None),
        ("void cutlass::device_kernel<cutlass::gemm::Gemm>(x)", UNKNOWN, "", None),
    ],
)  # fmt: skip
def test_classification(symbol: str, provider: str, label: str, dtype: DType | None) -> None:
    identity = classify(symbol)
    assert (identity.provider, identity.dtype) == (provider, dtype)
    assert label in identity.label
    assert identity.config is None


def test_the_tile_of_flash_attention_2() -> None:
    assert classify(FA2.format("flash", "half_t", "half_t")).tile == (128, 64)
    typed = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)64, (int)128, (int)32, 4>>"
    assert classify(typed).tile == (128, 32)


def test_metric_names() -> None:
    extra = with_extra(["sm__inst_executed.sum", DURATION.name, "sm__inst_executed.sum"])
    assert [metric.name for metric in extra[len(METRICS) :]] == ["sm__inst_executed.sum"]
    for name in ("", "a b", "--kernel-name", "x,y", "regex:^a$"):
        with pytest.raises(ValueError, match="is not a metric name"):
            with_extra([name])


class _Metric:
    def __init__(self, value: float | None, unit: str) -> None:
        self.value, self._unit = value, unit

    def has_value(self) -> bool:
        return self.value is not None

    def as_double(self) -> float:
        return self.value or 0.0  # as NVIDIA's does

    def unit(self) -> str:
        return self._unit


class _Action:
    NameBase_DEMANGLED = 7
    metrics = types.MappingProxyType(
        {DURATION.name: _Metric(61888.0, "ns"), CYCLES.name: _Metric(None, "cycle")}
    )

    def name(self, base: int) -> str:
        assert base == self.NameBase_DEMANGLED
        return "flash_fwd_x"

    def metric_by_name(self, name: str) -> _Metric | None:
        return self.metrics.get(name)


def _module(load: Callable[[str], object]) -> types.SimpleNamespace:
    return types.SimpleNamespace(load_report=load)


def test_the_binary_report() -> None:
    range_ = types.SimpleNamespace(num_actions=lambda: 2, action_by_idx=lambda n: _Action())
    context = types.SimpleNamespace(num_ranges=lambda: 1, range_by_idx=lambda n: range_)
    names = [metric.name for metric in METRICS]
    reading = read_report(Path("x.ncu-rep"), _module(lambda path: context), names)
    assert [launch.symbol for launch in reading.launches] == ["flash_fwd_x"] * 2
    values = reading.launches[0].values
    assert DURATION.read(values) == 61888
    with pytest.raises(MetricError, match="is n/a"):
        CYCLES.read(values)
    with pytest.raises(MetricError, match="is absent"):
        CLOCK.read(values)


def test_a_report_that_the_module_refuses() -> None:
    def load(path: str) -> object:
        raise RuntimeError("unknown version")

    with pytest.raises(ReadError, match=r"cannot read x.ncu-rep: unknown version"):
        read_report(Path("x.ncu-rep"), _module(load), [])


def test_the_module_of_ncus_installation_is_found_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "ncu_report", raising=False)
    home = tmp_path / "cuda/nsight-compute-2025.3.1"
    (home / "extras/python").mkdir(parents=True)
    (home / "extras/python/ncu_report.py").write_text("WHICH = 'installed'\n")
    (tmp_path / "cuda/bin").mkdir()
    (tmp_path / "cuda/bin/ncu").touch()  # a wrapper script, as in the CUDA toolkit
    (tmp_path / "link").symlink_to(home / "ncu")
    (home / "ncu").touch()
    for program in ("cuda/bin/ncu", "link"):
        module = find_report_module(tmp_path / program)
        assert module is not None
        assert module.WHICH == "installed"
        monkeypatch.delitem(sys.modules, "ncu_report")
    (home / "extras/python/ncu_report.py").write_text("raise ImportError('other Python')\n")
    found = find_report_module(tmp_path / "link")
    assert found is None or str(tmp_path) not in str(found.__file__)
