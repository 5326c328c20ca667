"""A row and its JSON: nothing is lost on the way, what older stores lack has its meaning."""

from __future__ import annotations

import pytest

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.problem import AttentionProblem
from flash_lab.bench.results import by_problem
from flash_lab.bench.row import Row, problem_of, shape_of
from tests.bench.report_rows import recorded_rows

SIZES = {"dtype": "FP16", "batch": 2, "n_heads": 4, "n_kv_heads": 2, "seq_len": 64, "d_head": 32}


def test_a_row_comes_back_from_its_json() -> None:
    for row in recorded_rows():
        assert Row.from_json(row.to_json()) == row


def test_what_this_version_does_not_know_is_kept() -> None:
    record = {"status": "ok", "provider": "ours", "kernel": "k", "key": "a", "of tomorrow": [1]}
    assert Row.from_json(record | {"throttled": None}).to_json() == record


@pytest.mark.parametrize(
    "problem",
    [
        AttentionProblem.self_attention(DType.BF16, 2, 64, 4, 32, n_kv_heads=2, causal=True),
        AttentionProblem(DType.FP16, 2, 1, 4096, 4, 4, 192, 128, causal=True),
    ],
)
def test_a_problem_comes_back_from_the_shape_of_a_row(problem: AttentionProblem) -> None:
    shape = shape_of(problem, 7)
    row = Row("ok", "ours", "k", shape=shape, samples_ms=[1.0])
    assert row.problem == problem and row.seed == 7 and row.lacking() == ""
    assert ("seqlen_k" in shape) == (problem.seqlen_k != problem.seqlen_q)


def test_a_shape_without_a_mask_is_one_of_the_first_stores() -> None:
    old, new = (
        Row("ok", "ours", kernel, shape=shape | {"seed": 1}, samples_ms=[1.0])
        for kernel, shape in (("a", SIZES), ("b", SIZES | {"causal": False}))
    )
    (result,) = by_problem([old, new])
    assert len(result.ranked) == 2 and not problem_of(SIZES).causal


@pytest.mark.parametrize(
    ("change", "message"),
    [({"n_kv_heads": 3}, "n_heads 4 is not a multiple of n_kv_heads 3"), ({"dtype": "FP7"}, "FP7")],
)
def test_sizes_that_make_no_problem_are_lacking(change: dict[str, object], message: str) -> None:
    row = Row("ok", "ours", "k", shape=SIZES | {"seed": 1} | change, samples_ms=[1.0])
    assert message in row.lacking()
