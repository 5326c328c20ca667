"""CSV cells: none is a formula for a spreadsheet, numbers are numbers, and our readers get back
what was written."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from flash_helpers.base import csv_text
from flash_helpers.base.dtypes import DType
from flash_helpers.emulator import counts_from_csv, counts_to_csv
from flash_helpers.emulator.counters.counts import Counts, InstructionCounts, Totals
from flash_lab.bench.ncu_rows import Verdict, read_verdicts
from flash_lab.bench.report import render_csv
from flash_lab.bench.results import by_problem
from flash_lab.bench.row import Row as BenchRow
from flash_lab.correctness import report as runner_report
from flash_lab.correctness.runner import Options, Row
from flash_lab.sass.render import render
from flash_lab.ws_analysis import measuring
from tests.bench.test_rows_of_any_kind import row
from tests.properties import given, st

ROOT = Path(__file__).resolve().parents[2]
FORMULA = '=HYPERLINK("http://x","y")'
FORMULAS = [FORMULA, "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1+1", "-x", "+cmd|"]
TEXTS = st.text() | st.builds("".join, st.lists(st.sampled_from(["'", "=", "+", "-", "@", "1"])))


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_becomes_text_and_comes_back(text: str) -> None:
    ((cell,),) = list(csv.reader(io.StringIO(csv_text.render([{"a": text}], ["a"], header=False))))
    assert cell == f"'{text}"
    assert csv_text.parse(csv_text.render([{"a": text}], ["a"])) == [{"a": text}]


@pytest.mark.parametrize(
    "number",
    [-1, -1.5, 0, 1e-7, -3e20, "-1", "+1", "-1.5", "-1e-05", "-.5", "-inf", "+nan", "1", "-"],
)
def test_numbers_and_a_lone_sign_stay(number: float | str) -> None:
    assert csv_text.harmless(number) == number


@given(st.lists(st.lists(TEXTS, min_size=3, max_size=3), max_size=4))
def test_any_text_comes_back_and_none_begins_a_formula(lines: list[list[str]]) -> None:
    columns = ["a", "b", "c"]
    rows = [dict(zip(columns, line, strict=True)) for line in lines]
    text = csv_text.render(rows, columns)
    assert csv_text.parse(text) == rows
    for cell in (cell for line in csv.reader(io.StringIO(text)) for cell in line):
        is_number = re.fullmatch(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", cell, re.ASCII | re.IGNORECASE)
        assert len(cell) < 2 or is_number or cell[0] not in "=+-@\t\r\n"


def test_what_is_no_table_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="row 3 has 1 cells instead of 2"):
        csv_text.parse("a,b\n1,2\n3\n")
    with pytest.raises(ValueError, match="not CSV: field larger"):
        csv_text.parse(f"a\n{'x' * 200_000}\n")
    assert csv_text.parse("") == []


def test_every_writer_is_this_one() -> None:
    """csv's own writers appear nowhere else."""
    users = [
        path
        for folder in ("py", "flash_attention", "tools")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"csv\.(writer|DictWriter)\(", path.read_text())
    ]
    assert users == [ROOT / "py/flash_helpers/base/csv_text.py"]


def test_labels_and_reasons_in_the_tools_tables() -> None:
    fields = [row("a", label=FORMULA), row("b", status="wrong", error=FORMULA)]
    rows = list(map(BenchRow.from_json, fields))
    found = csv_text.parse(render_csv(by_problem(rows)))
    assert [found[0]["label"], found[1]["error"]] == [FORMULA, FORMULA]
    shown = list(csv.DictReader(io.StringIO(render_csv(by_problem(rows)))))
    assert [shown[0]["label"], shown[1]["error"]] == [f"'{FORMULA}"] * 2
    assert float(shown[0]["mean_ms"]) > 0
    assert f"'{FORMULA}".replace('"', '""') in measuring.render_csv(by_problem(rows))
    assert render([{"a": FORMULA, "b": -3}], "csv").splitlines()[1].endswith(",-3")


def test_run_kernels_reason_comes_back() -> None:
    ran = [Row(FORMULA, DType.FP16, 128, problem=FORMULA),
           Row("v2: x (FP16, 128)", DType.FP16, 128, problem=FORMULA)]  # fmt: skip
    text = runner_report.render_csv(ran, Options("cuda", 2, 16, 1024, 3, 2))
    assert text.count("'=HYPERLINK") == 3
    assert read_verdicts(text) == {("v2", "FP16"): Verdict("NOT RUN", FORMULA)}


def test_the_emulators_counts_come_back() -> None:
    item = InstructionCounts(1, "=add", FORMULA, "integer", Totals(1, 2, 3, 4, 5))
    text = counts_to_csv(Counts(FORMULA, (item,)))
    assert "'=add" in text
    assert counts_from_csv(text) == Counts(FORMULA, (item,))
