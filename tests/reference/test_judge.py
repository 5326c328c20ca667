"""One judge for every tool that runs kernels: what it compares, and what it says of inputs."""

from __future__ import annotations

import pytest
import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.check.judge import Judge
from flash_helpers.check.reference import attention_reference
from flash_helpers.kernels.problem import AttentionProblem

PROBLEM = AttentionProblem.self_attention(DType.FP16, 3, 16, 4, 64, n_kv_heads=2, causal=True)


@pytest.fixture
def judge(seed: int) -> Judge:
    return Judge(PROBLEM.tensors(seed, "cpu"), causal=True, entries=slice(2))


def right(judge: Judge) -> torch.Tensor:
    return attention_reference(*judge.tensors, causal=True)[0].half()


def test_a_right_output_and_one_that_was_not_written(judge: Judge) -> None:
    assert judge.problem_with(right(judge)) == ""
    output = judge.poisoned()
    assert output.shape == (3, 16, 4, 64) and output.dtype == torch.float16
    assert bool(output.isnan().all()) and "rows" in judge.problem_with(output)


@pytest.mark.parametrize(
    ("entry", "value", "problem"),
    [(1, 9.0, "1 of "), (2, 9.0, ""), (2, float("inf"), "NaN or infinity in what was not")],
)
def test_what_is_not_compared_must_be_finite(
    judge: Judge, entry: int, value: float, problem: str
) -> None:
    output = right(judge)
    output[entry, 3, 3, 5] = value
    said = judge.problem_with(output)
    assert said.startswith(problem) if problem else said == ""


def test_inputs_that_were_overwritten_are_named_and_restored(judge: Judge) -> None:
    output = right(judge)
    q, _, v = judge.tensors
    q[0, 0, 0, 0], v[2, 15, 1, 63] = 7.0, float("nan")
    assert judge.problem_with(output) == "it overwrote its input q, v"
    assert judge.problem_with(output) == ""
