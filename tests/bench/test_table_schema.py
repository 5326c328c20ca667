"""What is a tuning table, and what is said of what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flash_attention import TuningTableError
from flash_attention.tuning_table import parse_table

from .test_tuning_table import UNBUILDABLE, entry


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_head": "128"}, "entry 0: d_head must be int, got '128'"),
        ({"causal": 0}, "causal must be bool"),
        ({"seq_max": 2.0}, "seq_max must be int or null"),
        ({"seq_min": 0}, "0..None is no range"),
        ({"seq_min": 9, "seq_max": 8}, "9..8 is no range"),
        ({"kernels": []}, "kernels is empty"),
        ({"kernels": ["fast"]}, "'fast' does not name a kernel"),
        ({"kernels": [3]}, "a kernel must be a string"),
        ({"kernels": [UNBUILDABLE]}, "cannot be built: n_warps = 8 needs B_r = 128"),
        ({"dtype": "fp16"}, "dtype must be FP16 or BF16"),
        ({"dtype": "BF16"}, "is not for BF16 and d_head 128"),
        ({"d_head": 64}, "is not for FP16 and d_head 64"),
        ({"speed": 3}, "field 'speed' is unknown"),
    ],
)
def test_the_schema(changes: dict[str, Any], message: str) -> None:
    text = json.dumps({"schema": 1, "entries": [entry(**changes)]})
    with pytest.raises(TuningTableError) as caught:
        parse_table(text, "here")
    assert message in str(caught.value) and str(caught.value).startswith("here")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "must be an object"),
        ("[" * 200_000, "is not JSON: nested more than"),
        ('{"schema": true, "entries": []}', "has schema True: expected 1"),
        ('{"schema": 1, "entries": [NaN]}', "is not JSON: nan is not a finite number"),
        ('{"schema": 2, "entries": []}', "has schema 2: expected 1"),
        ('{"schema": 1, "entries": {}}', "`entries` must be a list"),
        ('{"schema": 1, "entries": [], "x": 1}', "alone"),
    ],
)
def test_what_is_no_table(text: str, message: str) -> None:
    with pytest.raises(TuningTableError, match=message):
        parse_table(text, "here")


def test_a_missing_field_and_ranges_that_overlap() -> None:
    without = entry()
    del without["gpu"]
    with pytest.raises(TuningTableError, match="field 'gpu' is missing"):
        parse_table(json.dumps({"schema": 1, "entries": [without]}), "here")
    twice = [entry(seq_max=1024), entry(seq_min=1024)]
    with pytest.raises(TuningTableError, match="cover sequence 1024"):
        parse_table(json.dumps({"schema": 1, "entries": twice}), "here")
