"""ncu's raw page: one column for each metric, one line for each launch."""

from __future__ import annotations

import pytest

from flash_lab.bench.ncu_metrics import Quantity
from flash_lab.bench.ncu_read import ReadError, read_csv
from tests.ws_analysis.profile import TENSOR_BOUND, raw_csv


def test_the_raw_page_is_read() -> None:
    reading = read_csv(raw_csv(("a", TENSOR_BOUND), ("b", TENSOR_BOUND)))
    assert [launch.symbol for launch in reading.launches] == ["a", "b"]
    assert reading.problems == []
    assert reading.launches[1].values["gpu__time_duration.sum"] == Quantity("1,712,000", "ns")


def test_a_damaged_line_of_the_raw_page_is_said() -> None:
    text = raw_csv(("a", TENSOR_BOUND), ("b", TENSOR_BOUND), ("c", TENSOR_BOUND))
    lines = text.splitlines()
    lines[-1] = lines[-1][: len(lines[-1]) // 2]
    lines[-2] = lines[-2].replace('"1","4711"', '"0","4711"')
    reading = read_csv("\n".join(lines))
    assert [launch.symbol for launch in reading.launches] == ["a"]
    assert "repeats a launch" in reading.problems[0]
    assert "malformed" in reading.problems[1] or "cells instead of" in reading.problems[1]


def test_a_raw_page_without_units_is_refused() -> None:
    lines = raw_csv(("a", TENSOR_BOUND)).splitlines()
    del lines[2]
    with pytest.raises(ReadError, match="no line of units"):
        read_csv("\n".join(lines))
