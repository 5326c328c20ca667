"""From launches to rows: averages, calls of several kernels, checks, ratios, exit codes."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from flash_helpers.base.dtypes import DType
from flash_helpers.check.tolerance import Comparison
from flash_helpers.kernel_configs import parse_kernel_name_into_config
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.sm80_fwd.config import GENERAL_SUFFIX
from flash_lab.bench.ncu import NcuCase, Result, exit_code
from flash_lab.bench.ncu_metrics import METRICS, MetricError, Quantity
from flash_lab.bench.ncu_read import Launch, read_csv
from flash_lab.bench.ncu_rows import (
    FAILED,
    INCOMPLETE,
    OK,
    WRONG,
    Assembly,
    NcuRow,
    Verdict,
    Verdicts,
    check_clock,
    read_verdicts,
)
from flash_lab.bench.ncu_table import ratios, render_csv, render_table
from flash_lab.correctness.report import render_csv as render_runner_csv
from flash_lab.correctness.runner import Options, Row

OK_CSV = (Path(__file__).parent / "data/ncu/ok.csv").read_text()
RECORDED = read_csv(OK_CSV).launches
CONFIG = parse_kernel_name_into_config("(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles")
SIZE = AttentionProblem.self_attention(DType.FP16, 2, 1024, 16, 128)
PASS: Verdicts = {
    CONFIG.kernel_name(): Verdict("pass", ""),
    ("v2", "FP16"): Verdict("pass", ""),
    ("v3", "FP16"): Verdict("pass", ""),
}
FA3 = "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<cutlass::half_t>>>"
COMBINE = "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cutlass::half_t>>"


def assembly(launches: list[Launch], n_runs: int = 2, verdicts: Verdicts | None = None) -> Assembly:
    checked = PASS if verdicts is None else verdicts
    return Assembly.of(launches, METRICS, n_runs, checked, {DType.FP16})


def launch(symbol: str, like: int = 2, **changes: str) -> Launch:
    """A recorded launch under another name, with other values: the unit stays."""
    values = dict(RECORDED[like].values)
    for metric in METRICS:
        if metric.key in changes:
            values[metric.name] = Quantity(changes[metric.key], values[metric.name].unit)
    return Launch(symbol, values)


def test_the_mean_of_the_launches() -> None:
    row = assembly(RECORDED).our_row(CONFIG, SIZE)
    assert (row.status, row.launches, row.notes) == (OK, 2, [])
    assert row.values["duration_ns"] == (330_496 + 330_624) / 2
    assert row.values["l2_hit_pct"] == pytest.approx((73.55 + 81.82) / 2)
    assert row.values["bank_conflicts"] == (59_638_575 + 59_638_598) / 2
    assert row.values["spread_pct"] == pytest.approx(100 * 128 / 330_560)


@pytest.mark.parametrize(
    ("verdict", "status", "note"),
    [
        (Verdict("FAIL", "off by much"), WRONG, "off by much"),
        (Verdict("NOT RUN", "not built"), FAILED, "not built"),
        (None, FAILED, "before its output was checked"),
    ],
)
def test_without_a_right_output_there_is_no_time(
    verdict: Verdict | None, status: str, note: str
) -> None:
    verdicts: Verdicts = {CONFIG.kernel_name(): verdict} if verdict else {}
    row = assembly(RECORDED, verdicts=verdicts).our_row(CONFIG, SIZE)
    assert (row.status, row.values) == (status, {})
    assert note in row.notes[0]


def test_a_kernel_that_was_not_profiled() -> None:
    row = assembly(RECORDED[:6]).our_row(CONFIG, SIZE)
    assert (row.status, row.values) == (FAILED, {})
    assert "ncu profiled no kernel of it" in row.notes[0]


def test_a_launch_without_a_time_fails_the_row() -> None:
    row = assembly([launch(CONFIG.kernel_name(), duration_ns="n/a"), *RECORDED[6:7]]).our_row(
        CONFIG, SIZE
    )
    assert (row.status, row.values) == (FAILED, {})
    assert "gpu__time_duration.sum is n/a" in row.notes[0]


def test_a_counter_missing_in_one_launch_is_missing_in_the_mean() -> None:
    odd = launch(CONFIG.kernel_name(), 7, registers="n/a")
    row = assembly([RECORDED[6], odd]).our_row(CONFIG, SIZE)
    assert row.status == INCOMPLETE
    assert "registers" not in row.values
    assert row.values["duration_ns"] == 330_560


def test_a_call_of_two_kernels_costs_both() -> None:
    parts = [launch(FA3), launch(COMBINE, duration_ns="1,000", cycles="1,730", registers="40")]
    row = assembly([*parts, *parts]).reference_row("v3", DType.FP16, SIZE)
    assert row.status == OK
    assert row.values["duration_ns"] == 32_704 + 1_000
    assert row.values["registers"] == 168  # of the longer one
    assert row.symbol == FA3
    assert "one call is 2 kernels" in row.notes[0]
    twice = assembly([launch(FA3)] * 4).reference_row("v3", DType.FP16, SIZE)
    assert twice.values["duration_ns"] == 2 * 32_704
    odd = assembly([launch(FA3), launch(FA3), launch(COMBINE)])
    assert odd.reference_row("v3", DType.FP16, SIZE).status == FAILED


@pytest.mark.parametrize(("n_runs", "n"), [(1, 2), (1, 3), (2, 4), (2, 3), (3, 2)])
def test_of_our_kernels_the_figures_are_of_one_launch(n_runs: int, n: int) -> None:
    """A call of ours is one launch: a second one in a run is another call, never the second half
    of the first."""
    launches = [launch(CONFIG.kernel_name(), 6 + i % 2) for i in range(n)]
    row = assembly(launches, n_runs).our_row(CONFIG, SIZE)
    times = [330_496, 330_624]
    assert row.values["duration_ns"] == pytest.approx(sum(times[i % 2] for i in range(n)) / n)
    assert row.values["bank_conflicts"] == pytest.approx(59_638_586, abs=12)
    assert row.values["matmul_tflops"] == pytest.approx(51.97, abs=0.1)
    assert row.status == INCOMPLETE and exit_code([result([row])]) == 3
    assert row.notes == [
        f"{n} launches of it were profiled in {n_runs} runs: the figures are of one launch"
    ]


def test_a_reference_that_was_launched_twice_in_a_run_is_not_sure() -> None:
    """It may be a call of two launches, or two calls."""
    twice = assembly([launch(FA3)] * 2, n_runs=1).reference_row("v3", DType.FP16, SIZE)
    assert twice.status == INCOMPLETE and twice.values["duration_ns"] == 2 * 32_704
    assert "2 launches of it were profiled in 1 runs: if that was more than one" in twice.notes[1]


def test_two_kernels_of_ours_are_no_call() -> None:
    both = [launch(CONFIG.kernel_name()), launch(CONFIG.kernel_name() + GENERAL_SUFFIX)]
    row = assembly(both, n_runs=1).our_row(CONFIG, SIZE)
    assert row.status == FAILED and "2 kernels of it were profiled" in row.notes[0]


def test_references_of_two_dtypes_are_kept_apart() -> None:
    bf16 = launch(FA3.replace("half_t", "bfloat16_t"), duration_ns="31,704")
    both = assembly([launch(FA3), bf16], n_runs=1, verdicts={
        ("v3", "FP16"): Verdict("pass", ""), ("v3", "BF16"): Verdict("pass", ""),
    })  # fmt: skip
    both.only_dtype = None
    times = [both.reference_row("v3", d, SIZE).values["duration_ns"] for d in DType]
    assert times == [32_704, 31_704]
    nameless = launch("kernel_flash_attncuteFlashAttentionForwardSm90_object_at__tensor0000")
    unclear = assembly([nameless], n_runs=1)
    assert unclear.reference_row("v3", DType.FP16, SIZE).status == OK  # it was the only dtype
    unclear.only_dtype = None
    assert unclear.reference_row("v3", DType.FP16, SIZE).status == FAILED
    assert unclear.unknown().total() == 1


def test_unknown_kernels_are_counted() -> None:
    strangers = [launch("void flash_thing(x)"), launch("void flash_thing(x)")]
    assert assembly([*RECORDED, *strangers]).unknown() == {"void flash_thing(x)": 2}


def test_time_cycles_and_clock_must_agree() -> None:
    good = {"duration_ns": 56_128.0, "cycles": 100_330.0, "sm_clock_hz": 1.7808e9}
    check_clock(good)
    for key in good:
        for factor in (1000, 0.001, 1.5):
            with pytest.raises(MetricError, match="a unit is wrong"):
                check_clock(good | {key: good[key] * factor})


def test_verdicts_are_found_in_a_mixed_stream() -> None:
    text = (
        "==PROF== Connected\ncuda; seed 3\nkernel,symbol,dtype,d_head,status,explanation\n"
        'v2: FA (FP16),,FP16,128,pass,\n"(FP16, 1): x",sym,FP16,128,FAIL,"a, b"\n'
        '==PROF== Disconnected\n"ID","x"\nnote,more,text,x,y,z\n'
    )
    assert read_verdicts(text) == {
        ("v2", "FP16"): Verdict("pass", ""),
        "sym": Verdict("FAIL", "a, b"),
    }
    assert read_verdicts(OK_CSV) == {}


def test_verdicts_are_what_run_kernels_writes() -> None:
    right = Comparison(0.1, 1e-4, 5e-4, n_rows=8, n_bad_rows=0, first_mismatch=None)
    ran = [
        Row("v2: PyTorch FlashAttention-2 (FP16, 128)", DType.FP16, 128, comparison=right),
        Row("v3: PyTorch cuDNN (BF16, 128)", DType.BF16, 128, problem="refuses this"),
        Row(CONFIG.short_form(), DType.FP16, 128, CONFIG, right, repeats_equal=False),
    ]
    text = render_runner_csv(ran, Options("cuda", 2, 16, 1024, 3, 2))
    assert read_verdicts(f"noise\n{text}==PROF== Disconnected\n") == {
        ("v2", "FP16"): Verdict("pass", ""),
        ("v3", "BF16"): Verdict("NOT RUN", "refuses this"),
        CONFIG.kernel_name(): Verdict("FAIL", "repeated runs differ bitwise"),
    }


def result(rows: list[NcuRow], *troubles: str) -> Result:
    case = NcuCase.of([CONFIG], 1024, 128, 2, 16, 3, 2, ["ours", "v2", "v3"])
    return Result(case, rows, list(troubles))


def all_rows() -> list[NcuRow]:
    made = assembly(RECORDED)
    references = [made.reference_row(name, DType.FP16, SIZE) for name in ("v2", "v3")]
    return [*references, made.our_row(CONFIG, SIZE)]


def test_ratios() -> None:
    whole = result(all_rows())
    v2, cudnn, ours = whole.rows
    assert ratios(whole, v2) == {"relative": 1, "relative_cycles": 1}
    assert ratios(whole, ours)["relative"] == pytest.approx(56_128 / 330_560)
    assert ratios(whole, cudnn)["relative"] == pytest.approx(56_128 / 32_592)
    without = result([cudnn, ours])
    assert ratios(without, ours)["relative"] == pytest.approx(32_592 / 330_560)
    assert ratios(result([ours]), ours) == {}
    assert "no reference" in render_table(result([ours]), METRICS, True)


def test_exit_codes() -> None:
    fine = result(all_rows())
    assert exit_code([fine]) == 0
    wrong = result([*all_rows()[:2], all_rows()[2].fail("bad", WRONG)])
    assert exit_code([fine, wrong]) == 1
    none = result([*all_rows()[:2], all_rows()[2].fail("gone")])  # only references
    assert exit_code([none]) == 4
    assert exit_code([fine, none]) == 3
    assert exit_code([fine, result([], "no kernel fits")]) == 3
    assert exit_code([]) == 4
    assert exit_code([result(all_rows(), "line 3 is malformed")]) == 3
    part = all_rows()
    part[2].status = INCOMPLETE
    assert exit_code([result(part)]) == 3


def test_nothing_measured_gives_no_table() -> None:
    rows = [row.fail("gone") for row in all_rows()]
    text = render_table(result(rows), METRICS, True)
    assert "+--" not in text
    assert "gone" in text
    csv_text = render_csv(result(rows), METRICS, True, {}, header=True)
    table = list(csv.DictReader(io.StringIO(csv_text)))
    assert [row["status"] for row in table] == ["failed"] * 3
    assert {row[metric.key] for row in table for metric in METRICS} == {""}
