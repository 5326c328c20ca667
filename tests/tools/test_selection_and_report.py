"""Which kernels a command line names, and what is reported of their rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace

import pytest

from flash_helpers.kernel_configs import (
    DType,
    get_kernel_configs,
    parse_kernel_name_into_config,
)
from flash_lab.correctness import report
from flash_lab.correctness.runner import FAIL, NOT_RUN, PASS, Row, Session
from flash_lab.correctness.selection import partition, select_kernels

from .test_runner import KERNEL, NOT_GENERAL, OPTIONS, PROG, refuses, right, wrong_scale


def test_selection_takes_words_and_names_in_order_and_once() -> None:
    short, symbol = PROG[6].short_form(), PROG[2].kernel_name()
    found = select_kernels([f"{short}; {symbol}", "prog", "64,32"])
    assert found[:2] == [PROG[6], PROG[2]]
    assert set(found) == {*PROG, *get_kernel_configs("64,32")} and len(set(found)) == len(found)


def test_selection_without_arguments_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELS", "64,32")
    assert select_kernels(None) == get_kernel_configs("64,32")
    assert select_kernels(["prog"]) == PROG


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["progg"], "'progg' is not valid: expected one of prog, progall"),
        ([""], "empty item"),
        (["prog;"], "empty item"),
        (["1,1"], "'1,1' is not valid"),
        (["4096"], "'4096' is not valid"),
        ([PROG[0].short_form() + "x"], "does not name a kernel configuration"),
        ([PROG[0].short_form().replace("load_0_0_0", "load_3_3_0")], "cannot be built: Q_mma"),
    ],
)
def test_bad_selections_are_errors(arguments: Sequence[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select_kernels(arguments)


def test_what_does_not_fit_is_skipped_with_its_reason() -> None:
    big = replace(KERNEL, B_r=128)
    bf16 = replace(KERNEL, dtype=DType.BF16)
    kept, skipped = partition([KERNEL, big, bf16, PROG[0]], 64, d_head=64, dtype=DType.FP16)
    assert kept == [KERNEL]
    assert [(item.config, item.reason) for item in skipped] == [
        (big, f"sequence 64 is not divisible by its B_r = 128, {NOT_GENERAL}"),
        (bf16, "its dtype is not FP16"),
        (PROG[0], "its d_head 128 is not 64"),
    ]
    wide = replace(KERNEL, B_c=128)
    reason = f"sequence 64 is not divisible by its B_c = 128, {NOT_GENERAL}"
    assert partition([wide], 64)[1][0].reason == reason
    assert partition([KERNEL, bf16, PROG[0]], 64)[1] == []


# --- reports ----------------------------------------------------------------------------------


def sample_rows() -> list[Row]:
    session = Session(OPTIONS, right)
    rows = list(session.run([KERNEL], ["v2"]))
    session.forward = wrong_scale
    rows.append(session.run_kernel(replace(KERNEL, swizzled=True)))
    session.forward = refuses
    return [*rows, session.run_kernel(replace(KERNEL, eager_load_blocks=True))]


def test_table_rows_name_their_kernels() -> None:
    rows = sample_rows()
    lines = [line for line in report.render_table(rows).splitlines() if line.startswith("| (")]
    assert [parse_kernel_name_into_config(line) for line in lines] == [
        row.config for row in rows if row.config
    ]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[3:] for row in cells] == [["yes", PASS], ["yes", FAIL], ["-", NOT_RUN]]
    assert float(cells[0][2]) < 1 < float(cells[1][2])


def test_summary_counts_everything() -> None:
    _, skipped = partition([replace(KERNEL, B_r=128)], 64)
    text = report.render_summary(sample_rows(), skipped, 5)
    assert text == (
        "5 kernel(s) selected: 1 passed, 1 failed, 1 not run, 1 skipped, 1 not reached; "
        "1 reference(s): 1 passed, 0 failed, 0 not run"
    )


def test_csv_has_every_row_with_its_provenance() -> None:
    rows = sample_rows()
    records = list(csv.DictReader(io.StringIO(report.render_csv(rows, OPTIONS))))
    assert [record["status"] for record in records] == [PASS, PASS, FAIL, NOT_RUN]
    assert records[1]["symbol"] == KERNEL.kernel_name() and records[0]["symbol"] == ""
    assert {record["seed"] for record in records} == {"1"}
    assert records[3]["max_abs_error"] == records[3]["relative"] == ""  # unknown is not zero
    assert "not built" in records[3]["explanation"]


def test_exit_codes() -> None:
    good = Row("k", DType.FP16, 64, KERNEL, sample_rows()[1].comparison)
    reference = replace(good, config=None)
    missing = replace(good, comparison=None, problem="x")
    wrong = replace(good, problem="it overwrote its input q")
    for rows, code in (
        ([good], 0), ([good, reference], 0), ([good, missing], 3), ([wrong, missing], 1),
        ([missing], 4), ([], 4), ([reference], 4), ([reference, missing], 4),
        ([good, replace(missing, config=None)], 3), ([good, wrong], 1),
    ):  # fmt: skip
        assert report.exit_code(rows) == code
